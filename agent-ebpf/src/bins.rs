//! Nanoseconds by time of day, in bins of 20 ms: a ring of the last ten seconds.

/// Length of a bin, nanoseconds.
pub const BIN_NS: u64 = 20_000_000;
/// How many bins a ring has: 10.24 s. A power of two.
pub const BINS: usize = 512;
/// Over how many bins one interval is spread at most: 1.28 s. Of a longer one the last part counts.
pub const MAX_SPREAD: usize = 64;

/// One bin.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// Which one, counted from monotonic time 0.
    pub index: u64,
    /// Nanoseconds counted in it.
    pub ns: u64,
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
        bins: [Bin { index: 0, ns: 0 }; BINS],
    };

    /// Counts nanoseconds in the bin of the monotonic time `at`.
    #[inline(always)]
    pub fn add(&mut self, at: u64, ns: u64) {
        let index = at / BIN_NS;
        let bin = &mut self.bins[index as usize & (BINS - 1)];
        if bin.index != index {
            bin.index = index;
            bin.ns = 0;
        }
        bin.ns = bin.ns.wrapping_add(ns);
    }

    /// Counts the time between two moments, each part of it in its bin.
    #[inline(always)]
    pub fn spread(&mut self, from: u64, to: u64) {
        let mut to = to;
        for _ in 0..MAX_SPREAD {
            if to <= from {
                break;
            }
            let begin = (to - 1) / BIN_NS * BIN_NS;
            let part = if begin > from { begin } else { from };
            self.add(part, to - part);
            to = part;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BIN_NS, BINS, BinRing, MAX_SPREAD};

    #[test]
    fn an_interval_is_spread_over_its_bins() {
        let mut ring = BinRing::ZERO;
        ring.spread(1000 * BIN_NS + 5, 1002 * BIN_NS + 7);
        ring.spread(1002 * BIN_NS + 7, 1002 * BIN_NS + 9);
        let at = |index: usize| ring.bins[index % BINS];
        assert_eq!(
            [1000, 1001, 1002].map(|index| at(index).ns),
            [BIN_NS - 5, BIN_NS, 9]
        );
        assert_eq!(at(1000).index, 1000);
        assert_eq!(ring.bins.iter().filter(|bin| bin.ns > 0).count(), 3);
    }

    #[test]
    fn a_new_round_begins_at_zero_and_a_long_interval_is_cut() {
        let mut ring = BinRing::ZERO;
        ring.add(3 * BIN_NS, 11);
        ring.add((3 + BINS as u64) * BIN_NS, 5);
        assert_eq!(ring.bins[3].ns, 5);
        let mut ring = BinRing::ZERO;
        ring.spread(0, 200 * BIN_NS);
        let counted: u64 = ring.bins.iter().map(|bin| bin.ns).sum();
        assert_eq!(counted, MAX_SPREAD as u64 * BIN_NS);
        assert_eq!(ring.bins[199].ns, BIN_NS);
    }
}
