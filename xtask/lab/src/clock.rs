//! The clock of the record, in seconds since 1970 as a server's `server_time_usec`.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Turns instants into seconds since 1970. It reads the system's time once, so that a change of that time during a
/// run does not show in the record.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    instant: Instant,
    unix: f64,
}

impl Clock {
    /// Sets the clock by the system's time.
    pub fn new() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            instant: Instant::now(),
            unix: since.map_or(0.0, |since| since.as_secs_f64()),
        }
    }

    /// Returns the seconds since 1970 at `instant`.
    pub fn unix(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.instant) {
            Some(later) => self.unix + later.as_secs_f64(),
            None => self.unix - self.instant.duration_since(instant).as_secs_f64(),
        }
    }

    /// Returns the seconds since 1970 now.
    pub fn now(&self) -> f64 {
        self.unix(Instant::now())
    }
}
