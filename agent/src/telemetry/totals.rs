//! Totals of the structures that the kernel counts in.

use evictscope_abi::{Bounds, CallStats, Histogram, Probe, ResultKind, bounds};

use super::Accumulator;

/// A histogram since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramTotals {
    bounds: Bounds,
    counts: Vec<Accumulator>,
    sum: Accumulator,
}

impl HistogramTotals {
    /// An empty histogram.
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            counts: vec![Accumulator::default(); bounds.buckets()],
            sum: Accumulator::default(),
        }
    }

    /// Takes in the kernel's histogram, whose bounds are the same.
    pub(super) fn advance<const BUCKETS: usize>(&mut self, kernel: &Histogram<BUCKETS>) {
        for (total, counter) in self.counts.iter_mut().zip(kernel.counts) {
            total.advance(counter);
        }
        self.sum.advance(kernel.sum);
    }

    /// Counts a value that the kernel did not see.
    pub(super) fn record(&mut self, value: u64) {
        if let Some(count) = self.counts.get_mut(self.bounds.bucket(value)) {
            count.add(1);
            self.sum.add(value);
        }
    }

    /// The upper bounds (inclusive) with the number of values up to each, in ascending order.
    /// Values above the last bound are only in [`Self::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut up_to = 0;
        self.counts
            .iter()
            .enumerate()
            .filter_map(move |(index, count)| {
                up_to += count.count();
                Some((self.bounds.bound(index)?, up_to))
            })
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.count()).sum()
    }

    /// The sum of all values, in their unit.
    pub fn sum(&self) -> u128 {
        self.sum.total()
    }
}

/// The calls of one traced function since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTotals {
    /// Wall time of inner calls, nanoseconds.
    pub inner: HistogramTotals,
    /// Wall time of no-op calls, nanoseconds; counted only while the entry and return probes are
    /// attached.
    pub noop: HistogramTotals,
    hits: [Accumulator; Probe::ALL.len()],
    lost_exits: Accumulator,
}

impl CallTotals {
    /// No calls.
    pub(super) fn new() -> Self {
        Self {
            inner: HistogramTotals::new(bounds::DURATION_NS),
            noop: HistogramTotals::new(bounds::DURATION_NS),
            hits: Default::default(),
            lost_exits: Accumulator::default(),
        }
    }

    /// Takes in the kernel's counters.
    pub(super) fn advance(&mut self, kernel: &CallStats) {
        self.inner.advance(&kernel.inner);
        self.noop.advance(&kernel.noop);
        advance_all(&mut self.hits, &kernel.hits);
        self.lost_exits.advance(kernel.lost_exits);
    }

    /// Returns how often a probe was hit.
    pub fn hits(&self, probe: Probe) -> u64 {
        self.hits[probe as usize].count()
    }

    /// Returns how many inner calls were not seen to end.
    pub fn lost_exits(&self) -> u64 {
        self.lost_exits.count()
    }
}

/// Eviction calls of one kind since the server was found.
#[derive(Clone, Copy, Debug)]
pub struct EvictionTotals<'a> {
    /// Wall time, nanoseconds.
    pub duration: &'a HistogramTotals,
    pub(super) results: &'a [Accumulator; 4],
}

impl EvictionTotals<'_> {
    /// Returns how many calls ended so.
    pub fn results(&self, kind: ResultKind) -> u64 {
        self.results[kind as usize].count()
    }
}

/// Advances each total by the counter of the same index.
pub(super) fn advance_all<const N: usize>(totals: &mut [Accumulator; N], counters: &[u64; N]) {
    for (total, counter) in totals.iter_mut().zip(counters) {
        total.advance(*counter);
    }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{Histogram, bounds};
    use proptest::prelude::*;

    use super::HistogramTotals;

    #[test]
    fn values_above_the_last_bound_are_only_in_the_count() {
        let mut totals = HistogramTotals::new(bounds::DURATION_NS);
        for value in [1_000, 1_001, 3_600_000_000_000] {
            totals.record(value);
        }
        let cumulative: Vec<_> = totals.cumulative().collect();
        assert_eq!(cumulative[..2], [(1_000, 1), (2_000, 2)]);
        assert_eq!(cumulative.last(), Some(&(120_000_000_000, 2)));
        assert_eq!((totals.count(), totals.sum()), (3, 3_600_000_002_001));
    }

    proptest! {
        #[test]
        fn the_buckets_agree_with_the_values(values in prop::collection::vec(any::<u64>(), 0..100)) {
            const BUCKETS: usize = bounds::MEMORY.buckets();
            let mut kernel = Histogram::<BUCKETS>::ZERO;
            let mut totals = HistogramTotals::new(bounds::MEMORY);
            for value in &values {
                // As the memory of a server: below 2^62, so that no single step reaches 2^63.
                kernel.record(bounds::MEMORY.bucket(value >> 2), value >> 2);
                totals.advance(&kernel);
            }
            for (bound, up_to) in totals.cumulative() {
                let expected = values.iter().filter(|value| **value >> 2 <= bound).count();
                prop_assert_eq!(up_to, expected as u64);
            }
            prop_assert_eq!(totals.count(), values.len() as u64);
            prop_assert_eq!(totals.sum(), values.iter().map(|value| u128::from(*value >> 2)).sum::<u128>());
        }
    }
}
