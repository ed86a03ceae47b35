//! The two clocks of the daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the clock that the BPF programs use (`bpf_ktime_get_ns`).
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// How far apart two readings may be to count as one moment.
const APART: Duration = Duration::from_micros(500);
/// How many attempts are made to read them that close together: the thread may lose its CPU between the two.
const TRIES: u32 = 10;

/// Returns one moment by both clocks: [`monotonic`], and since 1970.
pub fn both() -> (Duration, Duration) {
    let mut at = monotonic();
    let mut unix = unix_time();
    for _ in 1..TRIES {
        let after = monotonic();
        if after.saturating_sub(at) <= APART {
            break;
        }
        (at, unix) = (after, unix_time());
    }
    (at, unix)
}

/// Returns the time of day, since 1970.
pub fn unix_time() -> Duration {
    // A clock before 1970 has not been set.
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
