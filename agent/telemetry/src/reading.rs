//! What causes of stalls are judged by.

use std::time::Duration;

use super::ThreadTimes;

/// What was read of a main thread at one moment. All times only grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Monotonic time.
    pub at: Duration,
    /// The main thread's times.
    pub times: ThreadTimes,
    /// CPU time in evicting calls, nanoseconds.
    pub eviction_ns: u64,
    /// CPU time in expire cycles, nanoseconds.
    pub expire_ns: u64,
    /// Whether it slept in its event loop; `None` where it ran, or where that is not known.
    pub is_resting: Option<bool>,
}
