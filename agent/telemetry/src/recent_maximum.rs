//! The highest value of the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back values count: a scrape every minute or two misses none, and an alert on a single value has time to see
/// it.
pub(super) const SPAN: Duration = Duration::from_secs(300);

/// The highest value of the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecentMaximum {
    /// Values with their times, oldest first, without those that a later value has reached.
    values: VecDeque<(Duration, u64)>,
}

impl RecentMaximum {
    /// Takes in a value that counts until five minutes after `at`. A value older than the last one is left out.
    pub fn take_in(&mut self, at: Duration, value: u64) {
        if self.values.back().is_some_and(|(last, _)| *last > at) {
            return;
        }
        let is_higher = |last: &mut (Duration, u64)| last.1 <= value;
        while self.values.pop_back_if(is_higher).is_some() {}
        self.values.push_back((at, value));
    }

    /// Forgets values that no longer count.
    pub fn forget(&mut self, now: Duration) {
        let is_over = |first: &mut (Duration, u64)| first.0 + SPAN <= now;
        while self.values.pop_front_if(is_over).is_some() {}
    }

    /// Returns the highest value, or 0 if there is none.
    pub fn get(&self) -> u64 {
        self.values.front().map_or(0, |(_, value)| *value)
    }
}
