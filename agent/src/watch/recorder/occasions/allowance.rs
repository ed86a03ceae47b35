//! How many of something there may be: some at once, and one more after each interval.

use std::time::Duration;

/// What is left of an allowance.
#[derive(Clone, Debug)]
pub struct Allowance {
    most: f64,
    every: Duration,
    left: f64,
    /// When that was so.
    at: Option<Duration>,
}

impl Allowance {
    /// Allows `most` at once, and one more per `every`.
    pub fn new(most: f64, every: Duration) -> Self {
        Self { most, every, left: most, at: None }
    }

    /// Returns whether there may be one more while `reserve` is kept for others.
    pub fn allows(&mut self, at: Duration, reserve: f64) -> bool {
        let since = self.at.replace(at);
        let more = since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
        self.left = self.most.min(self.left + more.div_duration_f64(self.every));
        self.left >= reserve + 1.0
    }

    /// Takes one if that is allowed.
    pub fn take(&mut self, at: Duration, reserve: f64) -> bool {
        let is_allowed = self.allows(at, reserve);
        if is_allowed {
            self.left -= 1.0;
        }
        is_allowed
    }
}
