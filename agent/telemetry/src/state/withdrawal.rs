//! Decides whether what a server does agrees with its probe plan.
//!
//! The kernel tests the invariants at evicting calls and at expire cycles, and stops counting either of them at its
//! first failure. It runs what the probes are in, or the plan is withdrawn at once. This module decides whether the
//! plan is withdrawn for eviction calls or for the expire cycle; each goes on without the other. Deliberately absent:
//! comparing the members that are read from outside, because `used_memory` is the very counter that the kernel compares
//! with at each call.

use evictscope_abi::{CallStats, Check, CycleCheck, EXPIRE, Probe};

use crate::{BrokenInvariant, ServerState, Unrun, Withdrawal};

/// The end of one evicting call in this many may be missed. Calls whose end is not seen are not counted, so beyond this
/// the counts are noticeably wrong. A call inside another call (a module that runs a command when a key is evicted)
/// loses an end even if the plan is right, but few servers do that.
const LOST_EXITS_ONE_IN: u64 = 100;
/// How many ends must be missed before the share means anything.
const LEAST_LOST_EXITS: u64 = 10;

impl Withdrawal {
    /// Returns why the plan must be withdrawn for eviction calls, if it must be.
    pub fn of_evictions(state: &ServerState) -> Option<Self> {
        let checks = [
            (BrokenInvariant::Allocator, Check::Allocator),
            (BrokenInvariant::Arithmetic, Check::Arithmetic),
            (BrokenInvariant::Maxmemory, Check::Maxmemory),
        ];
        let evictions = &state.counted.evictions;
        let of_checks = checks.map(|(broken, check)| {
            let check = check as usize;
            Self::of(broken, evictions.check_failures[check], evictions.checks[check])
        });
        let failed = of_checks.into_iter().find(|check| check.failed > 0);
        Self::of_unrun(state)
            .or(failed)
            .or_else(|| Self::of_lost_exits(BrokenInvariant::LostExit, state.eviction()))
            .or(state.unhit.proof)
    }

    fn of_unrun(state: &ServerState) -> Option<Self> {
        let Unrun { missing, placed } = state.unrun?;
        let of = |sites| u64::try_from(sites).unwrap_or(u64::MAX);
        Some(Self::of(BrokenInvariant::NotRun, of(missing), of(placed)))
    }

    /// Returns why the plan must be withdrawn for the expire cycle, if it must be.
    pub fn of_cycles(state: &ServerState) -> Option<Self> {
        if let Some(unrun) = Self::of_unrun(state) {
            return Some(unrun);
        }
        let calls = state.counted.calls.get(usize::from(EXPIRE))?;
        let checks = [(BrokenInvariant::CycleType, CycleCheck::Type), (BrokenInvariant::CycleKeys, CycleCheck::Keys)];
        let of_checks = checks.map(|(broken, check)| {
            let failed = state.counted.expires.check_failures[check as usize];
            Self::of(broken, failed, calls.hits[Probe::Inner as usize])
        });
        let failed = of_checks.into_iter().find(|check| check.failed > 0);
        failed
            .or_else(|| Self::of_lost_exits(BrokenInvariant::LostCycleEnd, calls))
            .or_else(|| state.expire_audit.contradiction())
    }

    fn of_lost_exits(broken: BrokenInvariant, calls: &CallStats) -> Option<Self> {
        let lost = Self::of(broken, calls.lost_exits, calls.hits[Probe::Inner as usize]);
        let is_lost = lost.failed >= LEAST_LOST_EXITS && lost.failed > lost.tested / LOST_EXITS_ONE_IN;
        is_lost.then_some(lost)
    }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{CallStats, Check, CycleCheck, Probe};

    use super::{BrokenInvariant, Unrun, Withdrawal};
    use crate::{ServerState, Snapshot};

    fn due(checks: [u64; 3], failures: [u64; 3], lost: u64, goals: u64) -> Option<Withdrawal> {
        let mut snapshot = Snapshot::default();
        snapshot.counted.evictions.checks = checks;
        snapshot.counted.evictions.check_failures = failures;
        snapshot.counted.calls[0].lost_exits = lost;
        snapshot.counted.calls[0].hits[Probe::Inner as usize] = goals;
        let mut state = ServerState::default();
        state.apply(&snapshot);
        assert_eq!(Withdrawal::of_cycles(&state), None);
        Withdrawal::of_evictions(&state)
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
            let expected = Withdrawal { broken, failed, tested };
            assert_eq!(due([900; 3], failures, 0, 900), Some(expected));
        }
    }

    #[test]
    fn what_is_not_run_is_withdrawn() {
        let (missing, placed) = (4, 5);
        let mut state = ServerState::default();
        state.apply(&Snapshot { unrun: Some(Unrun { missing, placed }), ..Snapshot::default() });
        let expected = Some((BrokenInvariant::NotRun, 4, 5));
        for withdrawal in [Withdrawal::of_evictions, Withdrawal::of_cycles] {
            let found = withdrawal(&state).map(|withdrawal| (withdrawal.broken, withdrawal.failed, withdrawal.tested));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_lost_end_now_and_then_is_no_reason() {
        assert_eq!(due([0; 3], [0; 3], 9, 20), None, "too few to tell");
        assert_eq!(due([0; 3], [0; 3], 10, 1_000), None, "one in a hundred");
        let broken = due([0; 3], [0; 3], 11, 1_000).map(|withdrawal| withdrawal.broken);
        assert_eq!(broken, Some(BrokenInvariant::LostExit));
    }

    #[test]
    fn the_expire_cycle_is_judged_by_itself() {
        let of = |check: Option<CycleCheck>, lost| {
            let mut snapshot = Snapshot::default();
            let calls = CallStats { hits: [0, 0, 1_000, 1_000], lost_exits: lost, ..CallStats::default() };
            snapshot.counted.calls.push(calls);
            if let Some(check) = check {
                snapshot.counted.expires.check_failures[check as usize] = 1;
            }
            let mut state = ServerState::default();
            state.apply(&snapshot);
            assert_eq!(Withdrawal::of_evictions(&state), None);
            Withdrawal::of_cycles(&state).map(|withdrawal| (withdrawal.broken, withdrawal.failed, withdrawal.tested))
        };
        assert_eq!(of(None, 10), None);
        let broken = BrokenInvariant::CycleType;
        assert_eq!(of(Some(CycleCheck::Type), 0), Some((broken, 1, 1_000)));
        let broken = BrokenInvariant::CycleKeys;
        assert_eq!(of(Some(CycleCheck::Keys), 0), Some((broken, 1, 1_000)));
        let broken = BrokenInvariant::LostCycleEnd;
        assert_eq!(of(None, 11), Some((broken, 11, 1_000)));
    }
}
