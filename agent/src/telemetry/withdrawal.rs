//! Whether what a server does agrees with its probe plan.
//!
//! The kernel tests the invariants at evicting calls, and stops counting at the first failure.
//! This module decides whether the plan is withdrawn. Deliberately absent: comparing the members that are read from
//! outside, since `used_memory` is the very counter that the kernel compares with at each call.

use std::fmt;

use evictscope_abi::{Check, Probe};

use super::{Accumulator, ServerState};

/// The end of one evicting call in this many may be missed. Calls whose end is not seen are not
/// counted, so beyond this the counts are noticeably wrong. A call inside another call (a module
/// that runs a command when a key is evicted) loses an end even where the plan is right, but few
/// servers do that.
const LOST_EXITS_ONE_IN: u64 = 100;
/// How many ends must be missed before the share means anything.
const LEAST_LOST_EXITS: u64 = 10;

/// What a server does that its plan says it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenInvariant {
    /// `mem_reported` is not the allocator's counter.
    Allocator,
    /// The goal variables do not add up.
    Arithmetic,
    /// `maxmemory` is not the `server` member.
    Maxmemory,
    /// Evicting calls end elsewhere than at the done sites.
    LostExit,
}

impl BrokenInvariant {
    /// Returns what that means, for people.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Allocator => "mem_reported is not what the allocator counts",
            Self::Arithmetic => "the goal variables do not add up",
            Self::Maxmemory => "maxmemory in the calculation is not the configured one",
            Self::LostExit => "evicting calls were not seen to end",
        }
    }
}

/// The spelling of the label `reason`.
impl fmt::Display for BrokenInvariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocator => "allocator",
            Self::Arithmetic => "arithmetic",
            Self::Maxmemory => "maxmemory",
            Self::LostExit => "lost_exit",
        })
    }
}

/// Why a plan is withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// What was broken.
    pub broken: BrokenInvariant,
    /// The number of evicting calls at which it was broken.
    pub failed: u64,
    /// The number of evicting calls at which it was tested.
    pub tested: u64,
}

impl Withdrawal {
    /// Returns why the plan of a server has to be withdrawn, if it has to be.
    pub fn due(state: &ServerState) -> Option<Self> {
        let checks = [
            (BrokenInvariant::Allocator, Check::Allocator),
            (BrokenInvariant::Arithmetic, Check::Arithmetic),
            (BrokenInvariant::Maxmemory, Check::Maxmemory),
        ];
        let withdrawal = |broken, failed: Accumulator, tested: Accumulator| Self {
            broken,
            failed: failed.count(),
            tested: tested.count(),
        };
        let of_checks = checks.map(|(broken, check)| {
            let check = check as usize;
            withdrawal(broken, state.check_failures[check], state.checks[check])
        });
        let calls = state.eviction();
        let inner = calls.hits[Probe::Inner as usize];
        let lost = withdrawal(BrokenInvariant::LostExit, calls.lost_exits, inner);
        let is_lost =
            lost.failed >= LEAST_LOST_EXITS && lost.failed > lost.tested / LOST_EXITS_ONE_IN;
        let failed = of_checks.into_iter().find(|check| check.failed > 0);
        failed.or(is_lost.then_some(lost))
    }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{Check, Probe};

    use super::{BrokenInvariant, Withdrawal};
    use crate::telemetry::{ServerState, Snapshot};

    fn due(checks: [u64; 3], failures: [u64; 3], lost: u64, goals: u64) -> Option<Withdrawal> {
        let mut snapshot = Snapshot::default();
        snapshot.counted.evictions.checks = checks;
        snapshot.counted.evictions.check_failures = failures;
        snapshot.counted.calls[0].lost_exits = lost;
        snapshot.counted.calls[0].hits[Probe::Inner as usize] = goals;
        let mut state = ServerState::new();
        state.apply(&snapshot);
        Withdrawal::due(&state)
    }

    #[test]
    fn one_failed_check_is_enough() {
        assert_eq!(due([900, 900, 900], [0; 3], 0, 900), None);
        for (check, broken) in [
            (Check::Allocator, BrokenInvariant::Allocator),
            (Check::Arithmetic, BrokenInvariant::Arithmetic),
            (Check::Maxmemory, BrokenInvariant::Maxmemory),
        ] {
            let mut failures = [0; 3];
            failures[check as usize] = 1;
            let (failed, tested) = (1, 900);
            let expected = Withdrawal {
                broken,
                failed,
                tested,
            };
            assert_eq!(due([900; 3], failures, 0, 900), Some(expected));
        }
    }

    #[test]
    fn a_lost_end_now_and_then_is_no_reason() {
        assert_eq!(due([0; 3], [0; 3], 9, 20), None, "too few to tell");
        assert_eq!(due([0; 3], [0; 3], 10, 1_000), None, "one in a hundred");
        let broken = due([0; 3], [0; 3], 11, 1_000).map(|withdrawal| withdrawal.broken);
        assert_eq!(broken, Some(BrokenInvariant::LostExit));
    }
}
