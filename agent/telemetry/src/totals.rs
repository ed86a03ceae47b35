//! Totals that only grow, of the structures that the kernel counts in.

use evictscope_abi::{Bounds, CallStats, Histogram, Probe, bounds};

/// Accumulates a kernel counter that runs modulo 2^64 into a total that does not wrap.
///
/// The sum of `mem_tofree` over evicting calls can wrap: after `maxmemory` was lowered by 10 GB, at 50,000 calls a
/// second within ten hours. Read at least once per 2^63 of growth, the total is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulator {
    last: u64,
    total: u128,
}

impl Accumulator {
    /// Takes in the counter's present value; counters begin at 0 when a server is attached. Ignores
    /// a value before the last one (a late reading), so that the total never goes back.
    pub fn advance(&mut self, counter: u64) {
        // A step of 2^63 or more is a step back: no counter grows that fast between two readings.
        let step = counter.wrapping_sub(self.last);
        if step < 1 << 63 {
            self.total += u128::from(step);
            self.last = counter;
        }
    }

    /// Adds an amount that the kernel did not count.
    pub fn add(&mut self, amount: u64) {
        self.total += u128::from(amount);
    }

    /// Returns the total, in the counter's unit.
    pub fn total(self) -> u128 {
        self.total
    }

    /// Returns the total as a count of events; these never come near 2^64.
    pub fn count(self) -> u64 {
        u64::try_from(self.total).unwrap_or(u64::MAX)
    }
}

/// A histogram since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramTotals {
    bounds: Bounds,
    counts: Vec<Accumulator>,
    sum: Accumulator,
}

impl HistogramTotals {
    /// Returns an empty histogram.
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

    /// Returns the upper bounds (inclusive) with the number of values up to each, in ascending order.
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

    /// Returns the number of values in each bucket, those above the last bound in the last one.
    pub fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.counts.iter().map(|count| count.count())
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.counts().sum()
    }

    /// Returns the sum of all values, in their unit.
    pub fn sum(&self) -> u128 {
        self.sum.total()
    }
}

/// The calls of one traced function since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTotals {
    /// Wall time of inner calls, nanoseconds; of all calls, where the function has no inner site.
    pub inner: HistogramTotals,
    /// Wall time of no-op calls, nanoseconds; counted only while the entry and return probes are
    /// attached.
    pub noop: HistogramTotals,
    /// Hits, by [`Probe`].
    pub hits: [Accumulator; Probe::ALL.len()],
    /// Time in inner calls in which the thread waited for a CPU, nanoseconds.
    pub cpu_wait: Accumulator,
    /// Inner calls that were not seen to end.
    pub lost_exits: Accumulator,
}

impl CallTotals {
    /// Returns the totals before the first call.
    pub(super) fn new() -> Self {
        Self {
            inner: HistogramTotals::new(bounds::INNER_NS),
            noop: HistogramTotals::new(bounds::NOOP_NS),
            hits: Default::default(),
            cpu_wait: Accumulator::default(),
            lost_exits: Accumulator::default(),
        }
    }

    /// Takes in the kernel's counters.
    pub(super) fn advance(&mut self, kernel: &CallStats) {
        self.inner.advance(&kernel.inner);
        self.noop.advance(&kernel.noop);
        advance_all(&mut self.hits, &kernel.hits);
        self.cpu_wait.advance(kernel.cpu_wait_ns);
        self.lost_exits.advance(kernel.lost_exits);
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

    use super::{Accumulator, HistogramTotals};

    #[test]
    fn a_late_reading_is_left_out() {
        let mut sum = Accumulator::default();
        for counter in [100, 90, 100, 110] {
            sum.advance(counter);
        }
        assert_eq!(sum.total(), 110);
    }

    #[test]
    fn values_above_the_last_bound_are_only_in_the_count() {
        let mut totals = HistogramTotals::new(bounds::NOOP_NS);
        for value in [1_000, 1_001, 3_600_000_000_000] {
            totals.record(value);
        }
        let cumulative: Vec<_> = totals.cumulative().collect();
        assert_eq!(cumulative, [(1_000, 1), (10_000, 2), (100_000, 2)]);
        assert_eq!((totals.count(), totals.sum()), (3, 3_600_000_002_001));
    }

    proptest! {
        #[test]
        fn the_total_is_the_sum_of_the_steps(steps in prop::collection::vec(0..1_u64 << 63, 0..50)) {
            let mut sum = Accumulator::default();
            let mut counter = 0_u64;
            for step in &steps {
                counter = counter.wrapping_add(*step);
                sum.advance(counter);
            }
            prop_assert_eq!(sum.total(), steps.iter().map(|step| u128::from(*step)).sum::<u128>());
        }

        #[test]
        fn the_buckets_agree_with_the_values(values in prop::collection::vec(any::<u64>(), 0..100)) {
            const BUCKETS: usize = bounds::MEM_TOFREE.buckets();
            let mut kernel = Histogram::<BUCKETS>::ZERO;
            let mut totals = HistogramTotals::new(bounds::MEM_TOFREE);
            for value in &values {
                // As the memory of a server: below 2^62, so that no single step reaches 2^63.
                kernel.record(bounds::MEM_TOFREE.bucket(value >> 2), value >> 2);
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
