//! What the cause of a stall is judged by.

use std::time::Duration;

use crate::ThreadTimes;

/// A reading of a main thread. All times only grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Monotonic time.
    pub at: Duration,
    /// The main thread's times.
    pub times: ThreadTimes,
    /// CPU time in evicting calls, nanoseconds; `None` if these are not timed.
    pub eviction_ns: Option<u64>,
    /// The same in expire cycles.
    pub expire_ns: Option<u64>,
    /// Whether it slept in its event loop; `None` if it ran, or if that is not known.
    pub is_resting: Option<bool>,
}
