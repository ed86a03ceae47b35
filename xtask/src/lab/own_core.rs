//! Whether the server had its core to itself: where something else ran there, a run shows what that
//! did to it, and is no evidence of anything else.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::redis::Server;

/// A server that waited this share of a second did not have its core to itself. With nothing else to
/// do, two cores had 1 to 6 % in their worst seconds.
pub const DISTURBED: f64 = 0.1;

/// The time that the server's main thread could have run, and another thread had its core.
pub struct OwnCore {
    waited: Duration,
    looked: Instant,
    longest: f64,
}

impl OwnCore {
    /// From now on.
    pub fn begin(server: &Server) -> Result<Self> {
        Ok(Self {
            waited: server.main_thread_times()?.waiting,
            looked: Instant::now(),
            longest: 0.0,
        })
    }

    /// Takes in the time since the last look; to be called about once a second.
    pub fn look(&mut self, server: &Server) -> Result<()> {
        let waited = server.main_thread_times()?.waiting;
        let share = (waited - self.waited).div_duration_f64(self.looked.elapsed());
        (self.waited, self.looked) = (waited, Instant::now());
        self.longest = self.longest.max(share);
        Ok(())
    }

    /// The greatest share of the time between two looks that it waited.
    pub fn longest_wait(&self) -> f64 {
        self.longest
    }
}
