//! A total that only grows, from a kernel counter that wraps.

/// Accumulates a kernel counter that runs modulo 2^64 into a total that does not wrap.
///
/// The sum of `mem_reported` over evicting calls does wrap: at 100 GB of memory and 50,000 calls a
/// second, every hour. Read at least once per 2^63 of growth, the total is exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accumulator {
    last: u64,
    total: u128,
}

impl Accumulator {
    /// Takes in the counter's present value. The first value is counted from 0, since counters
    /// begin there when a server is attached.
    ///
    /// A value that lies behind the last one is left out (a reading that came late), so that the
    /// total never goes back.
    pub fn advance(&mut self, counter: u64) {
        // A step of 2^63 or more is a step back: nothing grows by so much between two readings.
        let step = counter.wrapping_sub(self.last);
        if step < 1 << 63 {
            self.total += u128::from(step);
            self.last = counter;
        }
    }

    /// Adds what the kernel did not count.
    pub fn add(&mut self, amount: u64) {
        self.total += u128::from(amount);
    }

    /// The total, in the counter's unit.
    pub fn total(self) -> u128 {
        self.total
    }

    /// The total as a count of events; these never come near 2^64.
    pub fn count(self) -> u64 {
        u64::try_from(self.total).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Accumulator;

    #[test]
    fn a_counter_that_wraps_goes_on() {
        let mut sum = Accumulator::default();
        sum.advance(1 << 62);
        sum.advance((1 << 63) + 5);
        sum.advance(u64::MAX);
        sum.advance(9);
        assert_eq!(sum.total(), (1 << 64) + 9);
    }

    #[test]
    fn a_late_reading_is_left_out() {
        let mut sum = Accumulator::default();
        for counter in [100, 90, 100, 110] {
            sum.advance(counter);
        }
        assert_eq!(sum.total(), 110);
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
        fn the_total_never_goes_back(counters in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut sum = Accumulator::default();
            let mut before = 0;
            for counter in counters {
                sum.advance(counter);
                prop_assert!(sum.total() >= before);
                before = sum.total();
            }
        }
    }
}
