//! Whether the server had its core to itself. Where it had not, a run is no evidence.

use std::time::{Duration, Instant};

use anyhow::Result;
use evictscope_testkit::redis::Redis;

/// A server that waited for this share of a second did not have its core to itself. On two idle cores it
/// waited for 1 to 6 % of the worst second.
pub const DISTURBED: f64 = 0.1;

/// The time in which the server's main thread could have run and another thread had its core.
pub struct OwnCore {
    waited: Duration,
    looked: Instant,
    longest: f64,
}

impl OwnCore {
    /// Begins to measure it.
    pub fn begin(server: &Redis) -> Result<Self> {
        Ok(Self {
            waited: server.main_thread_times()?.waiting,
            looked: Instant::now(),
            longest: 0.0,
        })
    }

    /// Takes in the time since the last look. The caller looks about once a second.
    pub fn look(&mut self, server: &Redis) -> Result<()> {
        let waited = server.main_thread_times()?.waiting;
        let share = (waited - self.waited).div_duration_f64(self.looked.elapsed());
        (self.waited, self.looked) = (waited, Instant::now());
        self.longest = self.longest.max(share);
        Ok(())
    }

    /// Returns the longest wait between two looks, as a share of the time between them.
    pub fn longest_wait(&self) -> f64 {
        self.longest
    }
}
