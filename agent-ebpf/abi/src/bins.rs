//! Nanoseconds by time of day, in bins of 20 ms: a ring of the last ten seconds.

/// Length of a bin, nanoseconds.
pub const BIN_NS: u64 = 20_000_000;
/// How many bins a ring has: 10.24 s. A power of two.
pub const BINS: usize = 512;
/// One bin.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Which one, counted from monotonic time 0.
    pub index: u64,
    /// Nanoseconds counted in it.
    pub ns: u64,
    /// How many bins before it are full: an interval that ends in this one covers them. Counted here,
    /// as the verifier does not follow a loop over them; nothing else is counted in them.
    pub full_before: u64,
}

/// The newest bins, bin `i` at `i` modulo [`BINS`]. One that nothing was counted in keeps its
/// predecessor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BinRing {
    /// The bins.
    pub bins: [Bin; BINS],
}

impl BinRing {
    /// Nothing counted.
    pub const ZERO: Self = Self {
        bins: [Bin {
            index: 0,
            ns: 0,
            full_before: 0,
        }; BINS],
    };

    /// Counts nanoseconds in the bin of the monotonic time `at`.
    #[inline(always)]
    pub fn add(&mut self, at: u64, ns: u64) {
        let bin = self.bin(at / BIN_NS);
        bin.ns = bin.ns.wrapping_add(ns);
    }

    /// Counts the time between two moments, each part of it in its bin.
    #[inline(always)]
    pub fn spread(&mut self, from: u64, to: u64) {
        let (first, last) = (from / BIN_NS, to / BIN_NS);
        if first >= last {
            self.add(from, to.saturating_sub(from));
            return;
        }
        self.add(from, (first + 1) * BIN_NS - from);
        let bin = self.bin(last);
        bin.ns = bin.ns.wrapping_add(to - last * BIN_NS);
        if last - first > 1 {
            bin.full_before = last - first - 1;
        }
    }

    /// Counts nanoseconds, no more than a bin's length, that passed just before the monotonic time `at`:
    /// in its bin and the one before.
    #[inline(always)]
    pub fn add_before(&mut self, at: u64, ns: u64) {
        let since = at % BIN_NS;
        if ns > since {
            self.add(at - since - 1, ns - since);
            self.add(at, since);
        } else {
            self.add(at, ns);
        }
    }

    #[inline(always)]
    fn bin(&mut self, index: u64) -> &mut Bin {
        let bin = &mut self.bins[index as usize & (BINS - 1)];
        if bin.index != index {
            bin.index = index;
            bin.ns = 0;
            bin.full_before = 0;
        }
        bin
    }
}

#[cfg(test)]
mod tests {
    use super::{BIN_NS, BINS, BinRing};

    #[test]
    fn an_interval_is_spread_over_its_bins() {
        let mut ring = BinRing::ZERO;
        ring.spread(1000 * BIN_NS + 5, 1002 * BIN_NS + 7);
        ring.spread(1002 * BIN_NS + 7, 1002 * BIN_NS + 9);
        let at = |index: usize| ring.bins[index % BINS];
        assert_eq!([1000, 1002].map(|index| at(index).ns), [BIN_NS - 5, 9]);
        assert_eq!((at(1000).full_before, at(1002).full_before), (0, 1));
        assert_eq!(at(1000).index, 1000);
        assert_eq!(ring.bins.iter().filter(|bin| bin.ns > 0).count(), 2);
    }

    #[test]
    fn what_passed_before_a_moment_is_in_its_bin_and_the_one_before() {
        let mut ring = BinRing::ZERO;
        ring.add_before(7 * BIN_NS + 100, 4_000);
        ring.add_before(7 * BIN_NS + 5_000, 4_000);
        assert_eq!([6, 7].map(|index| ring.bins[index].ns), [3_900, 4_100]);
    }

    #[test]
    fn a_new_round_begins_at_zero() {
        let mut ring = BinRing::ZERO;
        ring.spread(0, 3 * BIN_NS + 11);
        ring.add((3 + BINS as u64) * BIN_NS, 5);
        assert_eq!((ring.bins[3].ns, ring.bins[3].full_before), (5, 0));
    }
}
