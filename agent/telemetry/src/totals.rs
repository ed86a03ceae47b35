//! What single values add up to: histograms, counters that only grow, and the highest of the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

use evictscope_abi::{Bounds, Histogram};

/// A histogram: how many values are in each bucket, and their sum.
#[derive(Clone, Copy, Debug)]
pub struct HistogramView<'a> {
    bounds: Bounds,
    counts: &'a [u64],
    sum: u128,
}

/// A histogram since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramTotals {
    bounds: Bounds,
    counts: Vec<u64>,
    sum: u128,
}

impl<'a> HistogramView<'a> {
    /// Returns a view of a kernel histogram with these bounds, whose sum is below 2^64.
    pub fn of<const BUCKETS: usize>(bounds: Bounds, kernel: &'a Histogram<BUCKETS>) -> Self {
        Self { bounds, counts: &kernel.counts, sum: kernel.sum.into() }
    }

    pub(crate) fn with_sum(self, sum: u128) -> Self {
        Self { sum, ..self }
    }

    /// Returns the upper bounds (inclusive) with the number of values up to each, in ascending order.
    /// Values above the last bound are only in [`Self::count`].
    pub fn cumulative(self) -> impl Iterator<Item = (u64, u64)> + 'a {
        let mut up_to = 0;
        self.counts.iter().enumerate().filter_map(move |(index, count)| {
            up_to += count;
            Some((self.bounds.bound(index)?, up_to))
        })
    }

    pub fn count(self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all values, in their unit.
    pub fn sum(self) -> u128 {
        self.sum
    }
}

impl HistogramTotals {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, counts: vec![0; bounds.buckets()], sum: 0 }
    }

    pub(crate) fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(self.bounds.bucket(value)) {
            *count += 1;
            self.sum += u128::from(value);
        }
    }

    pub fn view(&self) -> HistogramView<'_> {
        HistogramView { bounds: self.bounds, counts: &self.counts, sum: self.sum }
    }
}

/// Turns one of the server's own counters, which `CONFIG RESETSTAT` sets back to 0, into one that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unreset {
    last: Option<u64>,
    total: u64,
}

impl Unreset {
    /// Takes in the counter's value and returns how much it has grown since the first. A value lower than the one
    /// before shows that the counter was reset, and has counted from 0 since.
    pub fn advance(&mut self, counter: Option<u64>) -> Option<u64> {
        let counter = counter?;
        if let Some(last) = self.last {
            self.total = self.total.saturating_add(counter.checked_sub(last).unwrap_or(counter));
        }
        self.last = Some(counter);
        Some(self.total)
    }
}

/// How far back values count: a scrape every minute or two misses none, and an alert on a single value has time to see
/// it.
pub(crate) const RECENTLY: Duration = Duration::from_secs(300);

/// The highest value of the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecentMaximum {
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

    pub fn forget(&mut self, now: Duration) {
        let is_over = |first: &mut (Duration, u64)| first.0 + RECENTLY <= now;
        while self.values.pop_front_if(is_over).is_some() {}
    }

    /// Returns the highest value, or 0 if there is none.
    pub fn get(&self) -> u64 {
        self.values.front().map_or(0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::bounds;

    use super::HistogramTotals;

    #[test]
    fn values_above_the_last_bound_are_only_in_the_count() {
        let mut totals = HistogramTotals::new(bounds::NOOP_NS);
        for value in [1_000, 1_001, 3_600_000_000_000] {
            totals.record(value);
        }
        let cumulative: Vec<_> = totals.view().cumulative().collect();
        assert_eq!(cumulative, [(1_000, 1), (10_000, 2), (100_000, 2)]);
        assert_eq!((totals.view().count(), totals.view().sum()), (3, 3_600_000_002_001));
    }
}
