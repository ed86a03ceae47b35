//! What causes of stalls are judged by.

use std::time::Duration;

use crate::ThreadTimes;

/// What was read of a main thread at one moment. All times only grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Monotonic time.
    pub at: Duration,
    /// The main thread's times.
    pub times: ThreadTimes,
    /// CPU time in evicting calls, nanoseconds; `None` where these are not timed.
    pub eviction_ns: Option<u64>,
    /// The same in expire cycles.
    pub expire_ns: Option<u64>,
    /// Whether it slept in its event loop; `None` where it ran, or where that is not known.
    pub is_resting: Option<bool>,
}
