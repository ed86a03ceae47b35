//! A sample of the keys with a time to live: how many of them have expired and are still held.

/// Of fewer keys, a share says little, and they hold little.
const FEWEST: u64 = 100;

/// What a look at random keys with a time to live saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredSample {
    /// The server's keys with a time to live.
    pub keys: u64,
    /// How many were looked at.
    pub looked_at: u64,
    /// How many of those had expired.
    pub expired: u64,
}

impl ExpiredSample {
    /// Returns the share that had expired; `None` if there are too few keys.
    pub fn ratio(self) -> Option<f64> {
        let is_enough = self.keys.min(self.looked_at) >= FEWEST;
        is_enough.then(|| self.expired as f64 / self.looked_at as f64)
    }
}
