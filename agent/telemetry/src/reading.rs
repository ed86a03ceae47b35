//! What stalls are judged by.

use std::time::Duration;

use super::ThreadTimes;

/// What was read of a server at one moment. All of it only grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// Monotonic time.
    pub at: Duration,
    /// The main thread's times.
    pub times: ThreadTimes,
    /// Wall time in evicting calls, with that of the one under way, nanoseconds.
    pub evicting_ns: u64,
    /// When the evicting call under way began.
    pub evicting_since: Option<Duration>,
    /// Wall time in expire cycles, with that of the one under way, nanoseconds.
    pub expiring_ns: u64,
    /// When the expire cycle under way began.
    pub expiring_since: Option<Duration>,
    /// For how long evicting calls were observed.
    pub observed: Duration,
    /// The server's own counter of evicted keys.
    pub evicted_keys: Option<u64>,
}

impl Reading {
    /// Returns when the evicting call or the expire cycle under way began.
    pub fn under_way_since(&self) -> Option<Duration> {
        self.evicting_since.or(self.expiring_since)
    }
}
