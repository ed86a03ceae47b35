//! What is counted of expire cycles.

use evictscope_abi::{CycleStats, CycleType, ExpireStats, bounds};

use super::totals::advance_all;
use super::{Accumulator, HistogramTotals};

/// The expire cycles of one type that have ended since the server was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleTotals {
    /// Wall time from behind the early returns on, nanoseconds.
    pub duration: HistogramTotals,
    /// Keys with a time to live that they looked at.
    pub sampled: Accumulator,
    /// Keys of those that had expired.
    pub expired: Accumulator,
}

/// The expire cycles of a server since it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpireCycles {
    /// Those that have ended, by [`CycleType`].
    pub by_type: [CycleTotals; CycleType::ALL.len()],
    /// How often an invariant failed, by [`evictscope_abi::CycleCheck`].
    pub check_failures: [Accumulator; 2],
}

impl CycleTotals {
    fn new() -> Self {
        Self {
            duration: HistogramTotals::new(bounds::CYCLE_NS),
            sampled: Accumulator::default(),
            expired: Accumulator::default(),
        }
    }

    fn advance(&mut self, kernel: &CycleStats) {
        self.duration.advance(&kernel.duration);
        self.sampled.advance(kernel.sampled);
        self.expired.advance(kernel.expired);
    }
}

impl ExpireCycles {
    /// Returns the totals before the first cycle.
    pub(super) fn new() -> Self {
        Self {
            by_type: CycleType::ALL.map(|_| CycleTotals::new()),
            check_failures: Default::default(),
        }
    }

    /// Takes in the kernel's counters.
    pub(super) fn advance(&mut self, kernel: &ExpireStats) {
        for (totals, cycles) in self.by_type.iter_mut().zip(&kernel.cycles) {
            totals.advance(cycles);
        }
        advance_all(&mut self.check_failures, &kernel.check_failures);
    }

    /// Returns how many have ended.
    pub fn count(&self) -> u64 {
        self.by_type.iter().map(|one| one.duration.count()).sum()
    }

    /// Returns the wall time in those that have ended, nanoseconds.
    pub fn ns(&self) -> u128 {
        self.by_type.iter().map(|one| one.duration.sum()).sum()
    }

    /// Returns how many keys they have sampled, and how many of those had expired.
    pub fn keys(&self) -> (u64, u64) {
        let sum = |keys: fn(&CycleTotals) -> Accumulator| {
            self.by_type.iter().map(|one| keys(one).count()).sum()
        };
        (sum(|one| one.sampled), sum(|one| one.expired))
    }
}
