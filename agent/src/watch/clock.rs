//! The two clocks of the daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the clock that the BPF programs use (`bpf_ktime_get_ns`).
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// Returns the time of day, since 1970.
pub fn unix_time() -> Duration {
    // A clock before 1970 is not set.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
