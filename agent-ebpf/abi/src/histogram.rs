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
    /// An empty histogram.
    pub const ZERO: Self = Self {
        counts: [0; BUCKETS],
        sum: 0,
    };

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
    /// 0, and then as `Powers`.
    ZeroAndPowers {
        /// Exponent of the least bound above zero.
        first: u32,
        /// Difference between neighbouring exponents.
        step: u32,
        /// Exponent of the greatest bound.
        last: u32,
    },
    /// An explicit, ascending list.
    List(&'static [u64]),
}

impl Bounds {
    /// How many buckets a histogram with these bounds has: one for each bound, and one for all
    /// that is above the last.
    pub const fn buckets(self) -> usize {
        match self {
            Self::Powers { first, step, last } => ((last - first) / step) as usize + 2,
            Self::ZeroAndPowers { first, step, last } => ((last - first) / step) as usize + 3,
            Self::List(list) => list.len() + 1,
        }
    }

    /// The bucket of `value`: the index of the first bound that is not less than it.
    #[inline(always)]
    pub fn bucket(self, value: u64) -> usize {
        match self {
            Self::Powers { first, step, last } => power_bucket(value, first, step, last),
            Self::ZeroAndPowers { first, step, last } => {
                if value == 0 {
                    0
                } else {
                    1 + power_bucket(value, first, step, last)
                }
            }
            Self::List(list) => {
                let mut bucket = 0;
                while let Some(bound) = list.get(bucket) {
                    if value <= *bound {
                        break;
                    }
                    bucket += 1;
                }
                bucket
            }
        }
    }

    /// The i-th bound; `None` for the last bucket, which has none.
    pub const fn bound(self, index: usize) -> Option<u64> {
        if index + 1 >= self.buckets() {
            return None;
        }
        match self {
            Self::Powers { first, step, .. } => Some(1 << (first + step * index as u32)),
            Self::ZeroAndPowers { first, step, .. } => match index {
                0 => Some(0),
                _ => Some(1 << (first + step * (index as u32 - 1))),
            },
            Self::List(list) => Some(list[index]),
        }
    }
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

/// The bounds of every exported histogram that the kernel fills.
pub mod bounds {
    use super::Bounds;

    /// Duration of calls, nanoseconds: the 1-2-5 series from 1 µs to 5 s, 30 s, 120 s.
    pub const DURATION_NS: Bounds = Bounds::List(&DURATIONS);
    const DURATIONS: [u64; 23] = [
        1_000,
        2_000,
        5_000,
        10_000,
        20_000,
        50_000,
        100_000,
        200_000,
        500_000,
        1_000_000,
        2_000_000,
        5_000_000,
        10_000_000,
        20_000_000,
        50_000_000,
        100_000_000,
        200_000_000,
        500_000_000,
        1_000_000_000,
        2_000_000_000,
        5_000_000_000,
        30_000_000_000,
        120_000_000_000,
    ];
    /// `mem_tofree`, bytes: powers of 2, 64 B … 256 MiB.
    pub const MEM_TOFREE: Bounds = Bounds::Powers {
        first: 6,
        step: 1,
        last: 28,
    };
    /// `mem_reported` and `mem_used`, bytes: powers of 2, 1 MiB … 1 TiB.
    pub const MEMORY: Bounds = Bounds::Powers {
        first: 20,
        step: 1,
        last: 40,
    };
    /// `overhead`, bytes: 0, then powers of 4, 1 KiB … 16 GiB.
    pub const OVERHEAD: Bounds = Bounds::ZeroAndPowers {
        first: 10,
        step: 2,
        last: 34,
    };
    /// Client buffers, bytes: powers of 2, 64 KiB … 64 GiB.
    pub const CLIENT_BUFFERS: Bounds = Bounds::Powers {
        first: 16,
        step: 1,
        last: 36,
    };
}

#[cfg(test)]
mod tests {
    use super::{Bounds, bounds};

    const ALL: [Bounds; 5] = [
        bounds::DURATION_NS,
        bounds::MEM_TOFREE,
        bounds::MEMORY,
        bounds::OVERHEAD,
        bounds::CLIENT_BUFFERS,
    ];

    #[test]
    fn a_value_is_in_the_first_bucket_whose_bound_is_not_less() {
        for series in ALL {
            for index in 0..series.buckets() - 1 {
                let Some(bound) = series.bound(index) else {
                    panic!("{series:?} has no bound {index}");
                };
                assert_eq!(series.bucket(bound), index, "{series:?} at {bound}");
                assert_eq!(
                    series.bucket(bound + 1),
                    index + 1,
                    "{series:?} above {bound}"
                );
            }
            assert_eq!(series.bucket(0), 0);
            assert_eq!(series.bucket(u64::MAX), series.buckets() - 1);
            assert_eq!(series.bound(series.buckets() - 1), None);
        }
    }

    #[test]
    fn the_bounds_are_those_of_the_contract() {
        let ends = |series: Bounds| (series.bound(0), series.bound(series.buckets() - 2));
        assert_eq!(
            ends(bounds::DURATION_NS),
            (Some(1_000), Some(120_000_000_000))
        );
        assert_eq!(ends(bounds::MEM_TOFREE), (Some(64), Some(256 << 20)));
        assert_eq!(ends(bounds::MEMORY), (Some(1 << 20), Some(1 << 40)));
        assert_eq!(ends(bounds::OVERHEAD), (Some(0), Some(16 << 30)));
        assert_eq!(bounds::OVERHEAD.bound(1), Some(1 << 10));
        assert_eq!(bounds::OVERHEAD.bound(2), Some(4 << 10));
        assert_eq!(
            ends(bounds::CLIENT_BUFFERS),
            (Some(64 << 10), Some(64 << 30))
        );
    }
}
