//! The two clocks of the agent. Everything inside is monotonic; what leaves it is dated by [`since_1970`] at that
//! moment.
//!
//! So a step of the wall clock moves all that is shown, together. A record keeps the dates that it was written with.
//! The monotonic clock does not go on while the host is suspended: what was before is then dated later by that time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time of the clock that the BPF programs use (`bpf_ktime_get_ns`).
pub fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

/// How far apart two readings may be to count as one moment.
const APART: Duration = Duration::from_micros(500);
/// How many attempts are made to read them that close together: the thread may lose its CPU between the two.
const TRIES: u32 = 10;
/// The offset stays while the clocks are no further apart than this, so that dates do not change from one answer to the
/// next.
const TOLERANCE: Duration = Duration::from_millis(1);

/// Returns what to add to a monotonic time to get the time since 1970, as the clocks are set now.
pub fn since_1970() -> Duration {
    static LAST: Mutex<Duration> = Mutex::new(Duration::ZERO);
    let mut at = monotonic();
    let mut unix = unix_time();
    for _ in 1..TRIES {
        let after = monotonic();
        if after.saturating_sub(at) <= APART {
            break;
        }
        (at, unix) = (after, unix_time());
    }
    let now = unix.saturating_sub(at);
    let mut last = LAST.lock();
    if last.abs_diff(now) > TOLERANCE {
        *last = now;
    }
    *last
}

/// Returns the time of day, since 1970.
pub fn unix_time() -> Duration {
    // A clock before 1970 has not been set.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
