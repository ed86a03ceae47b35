//! Histograms whose bounds are the same in the kernel and in the exported metric.

/// A histogram that the kernel fills: `counts[i]` is the number of values that are at most the
/// i-th bound and above the one before; the last count has no bound. `sum` wraps.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const BUCKETS: usize> {
    /// Values per bucket, not cumulative.
    pub counts: [u64; BUCKETS],
    /// Sum of all values, modulo 2^64.
    pub sum: u64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self::ZERO
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    pub const ZERO: Self = Self { counts: [0; BUCKETS], sum: 0 };

    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Counts `value` in `bucket`; a bucket that does not exist is not counted.
    #[inline(always)]
    pub fn record(&mut self, bucket: usize, value: u64) {
        // Without this the compiler proves the bound itself, drops the check, and the verifier,
        // which cannot follow the proof, refuses the program.
        let bucket = core::hint::black_box(bucket);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.wrapping_add(1);
            self.sum = self.sum.wrapping_add(value);
        }
    }
}

/// A series of upper bounds (inclusive, as `le` in Prometheus is).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// `2^first, 2^(first + step), …, 2^last`.
    Powers {
        /// Exponent of the least bound.
        first: u32,
        /// Difference between neighbouring exponents.
        step: u32,
        /// Exponent of the greatest bound.
        last: u32,
    },
    /// An explicit, ascending list of fewer than 64.
    List(&'static [u64]),
}

impl Bounds {
    /// Returns how many buckets a histogram with these bounds has: one for each bound, and one for all above the last.
    pub const fn buckets(self) -> usize {
        match self {
            Self::Powers { first, step, last } => ((last - first) / step) as usize + 2,
            Self::List(list) => list.len() + 1,
        }
    }

    /// Returns the bucket of `value`: the index of the first bound that is not less than it.
    #[inline(always)]
    pub fn bucket(self, value: u64) -> usize {
        match self {
            Self::Powers { first, step, last } => power_bucket(value, first, step, last),
            Self::List(list) => list_bucket(value, list),
        }
    }

    /// Returns the i-th bound; `None` for the last bucket, which has none.
    pub const fn bound(self, index: usize) -> Option<u64> {
        if index + 1 >= self.buckets() {
            return None;
        }
        match self {
            Self::Powers { first, step, .. } => Some(1 << (first + step * index as u32)),
            Self::List(list) => Some(list[index]),
        }
    }
}

/// Halves what is left of the list six times, always: a program that a probe runs must not take longer for a long list,
/// and the verifier must be able to follow it.
#[inline(always)]
fn list_bucket(value: u64, list: &[u64]) -> usize {
    let mut bucket = 0;
    let mut step = 32;
    while step > 0 {
        if let Some(bound) = list.get(bucket + step - 1)
            && value > *bound
        {
            bucket += step;
        }
        step /= 2;
    }
    bucket
}

#[inline(always)]
fn power_bucket(value: u64, first: u32, step: u32, last: u32) -> usize {
    if value <= 1 << first {
        return 0;
    }
    if value > 1 << last {
        return ((last - first) / step) as usize + 1;
    }
    // The exponent of the least power of two that is not less than value.
    let exponent = 64 - (value - 1).leading_zeros();
    (exponent - first).div_ceil(step) as usize
}

/// The bounds of every exported histogram.
pub mod bounds {
    use super::Bounds;

    const fn from_microseconds<const N: usize>(mut bounds: [u64; N]) -> [u64; N] {
        let mut index = 0;
        while index < N {
            bounds[index] *= 1_000;
            index += 1;
        }
        bounds
    }

    /// Duration of inner calls, nanoseconds. From 100 µs to 2 ms each bound is at most a tenth above the one before, so
    /// whatever the values are, a quantile that Prometheus interpolates between two bounds is off by a tenth at most.
    /// Redis cuts its eviction calls short in this range: `maxmemory-eviction-tenacity` 2 to 20 is 100 µs to 2 ms, 500
    /// µs by default.
    pub const INNER_NS: Bounds = Bounds::List(&INNER);
    const INNER: [u64; 38] = from_microseconds([
        5, 20, 100, 110, 121, 133, 146, 160, 176, 193, 212, 233, 256, 281, 309, 339, 372, 409, 449, 493, 542, 596, 655,
        720, 792, 871, 958, 1053, 1158, 1273, 1400, 1540, 1690, 1850, 2000, 10_000, 100_000, 1_000_000,
    ]);
    /// Duration of the other calls, nanoseconds: they do next to nothing, unless the thread is held up.
    pub const NOOP_NS: Bounds = Bounds::List(&[1_000, 10_000, 100_000]);
    /// Duration of expire cycles, nanoseconds. A cycle stops soon after its time limit. The limits at `hz` 10 and
    /// `active-expire-effort` 1, 1 ms of a fast cycle and 25 ms of a slow one, are bounds, so cycles that were cut
    /// there are between that bound and the next. At effort 10 the limits are 3.25 ms and 43 ms. The limit of a slow
    /// cycle is proportional to 1 / `hz`: at 1 it is 250 to 430 ms, at 100 a tenth of that at 10.
    pub const CYCLE_NS: Bounds =
        Bounds::List(&[100_000, 1_000_000, 2_000_000, 5_000_000, 25_000_000, 50_000_000, 500_000_000]);
    /// `mem_tofree`, bytes: powers of 4, 64 B … 64 GiB.
    pub const MEM_TOFREE: Bounds = Bounds::Powers { first: 6, step: 2, last: 36 };
    /// Client buffers, bytes: powers of 2, 1 MiB … 16 GiB.
    pub const CLIENT_BUFFERS: Bounds = Bounds::Powers { first: 20, step: 1, last: 34 };
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::{Bounds, bounds};

    const ALL: [Bounds; 5] =
        [bounds::INNER_NS, bounds::NOOP_NS, bounds::CYCLE_NS, bounds::MEM_TOFREE, bounds::CLIENT_BUFFERS];

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_is_not_less() {
        for series in ALL {
            for index in 0..series.buckets() - 1 {
                let Some(bound) = series.bound(index) else {
                    panic!("{series:?} has no bound {index}");
                };
                assert_eq!(series.bucket(bound), index, "{series:?} at {bound}");
                assert_eq!(series.bucket(bound + 1), index + 1, "{series:?} above {bound}");
            }
            assert_eq!(series.bucket(0), 0);
            assert_eq!(series.bucket(u64::MAX), series.buckets() - 1);
            assert_eq!(series.bound(series.buckets() - 1), None);
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_contract() {
        let ends = |series: Bounds| (series.bound(0), series.bound(series.buckets() - 2));
        assert_eq!(ends(bounds::INNER_NS), (Some(5_000), Some(1_000_000_000)));
        assert_eq!(ends(bounds::NOOP_NS), (Some(1_000), Some(100_000)));
        assert_eq!(ends(bounds::CYCLE_NS), (Some(100_000), Some(500_000_000)));
        assert_eq!(ends(bounds::MEM_TOFREE), (Some(64), Some(64 << 30)));
        assert_eq!(ends(bounds::CLIENT_BUFFERS), (Some(1 << 20), Some(16 << 30)));
    }

    #[test]
    fn where_redis_cuts_its_calls_each_bound_is_at_most_a_tenth_above_the_one_before() {
        let bounds = |index| bounds::INNER_NS.bound(index);
        let fine: Vec<(u64, u64)> = (0..)
            .map_while(|index| Some((bounds(index)?, bounds(index + 1)?)))
            .filter(|(low, high)| *low >= 100_000 && *high <= 2_000_000)
            .collect();
        let ends = (fine.first().map(|pair| pair.0), fine.last().map(|pair| pair.1));
        assert_eq!(ends, (Some(100_000), Some(2_000_000)));
        for (low, high) in fine {
            assert!(low < high && 10 * high <= 11 * low, "{low} {high}");
        }
    }
}
