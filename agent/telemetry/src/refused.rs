//! Commands that were refused because no key could be evicted.
//!
//! Redis tries to evict before each command. Where that fails, it answers those that may take memory with an error, and executes
//! the others. So failing calls say little: a server that is read a lot makes tens of thousands of them a second, and refuses nothing.

use std::time::Duration;

use evictscope_plan::Member;

use super::Snapshot;
use super::unreset::Unreset;

/// Counts refused commands: the errors that a server answered while its evicting calls failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    total: Option<u64>,
    errors: Unreset,
    /// Errors, failing calls and the time for which calls were observed, at the last snapshot.
    last: Option<(u64, u64, Duration)>,
    is_failing: bool,
}

impl Refused {
    /// Returns how many were refused; `None` where the server's errors are not known.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Takes in a snapshot.
    pub fn take_in(&mut self, snapshot: &Snapshot, failed_calls: u64) {
        let members = snapshot.members.unwrap_or_default();
        let errors = members.get(Member::StatTotalErrorReplies);
        let Some(errors) = self.errors.advance(errors) else {
            return;
        };
        let observed = snapshot.observed.evicting;
        let last = self.last.replace((errors, failed_calls, observed));
        let total = self.total.get_or_insert(0);
        let Some((errors_before, failed_before, observed_before)) = last else {
            return;
        };
        let was_failing = self.is_failing;
        // While calls are not observed, it is as it was. An error may be counted a moment after the call that failed for it.
        self.is_failing =
            failed_calls > failed_before || was_failing && observed == observed_before;
        if self.is_failing || was_failing {
            *total += errors.saturating_sub(errors_before);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_plan::Member;

    use super::Refused;
    use crate::{Members, Observed, Snapshot};

    /// Takes in snapshots of errors, failing calls, and whether calls were observed since the one before.
    fn refused(snapshots: &[(Option<u64>, u64, bool)]) -> Option<u64> {
        let (mut refused, mut evicting) = (Refused::default(), Duration::ZERO);
        for (errors, failed, is_observed) in snapshots {
            evicting += Duration::from_millis(if *is_observed { 100 } else { 0 });
            let errors = errors.map(|errors| (Member::StatTotalErrorReplies, errors));
            let snapshot = Snapshot {
                members: Some(Members::from_iter(errors)),
                observed: Observed {
                    evicting,
                    ..Observed::default()
                },
                ..Snapshot::default()
            };
            refused.take_in(&snapshot, *failed);
        }
        refused.total()
    }

    #[test]
    fn errors_are_refusals_while_evicting_calls_fail() {
        let calm = [(Some(5), 0, true), (Some(9), 0, true), (Some(12), 0, true)];
        assert_eq!(refused(&calm), Some(0), "errors for other reasons");
        let read_only = [(Some(5), 0, true), (Some(5), 90_000, true)];
        assert_eq!(refused(&read_only), Some(0), "nothing was written");
        let full = [
            (Some(5), 0, true),
            (Some(8), 3, true),
            (Some(9), 4, true),
            (Some(9), 4, true),
        ];
        assert_eq!(refused(&full), Some(4));
        // Probes are off for some of the time.
        let sampled = [
            (Some(5), 0, true),
            (Some(8), 3, true),
            (Some(20), 3, false),
            (Some(21), 3, true),
            (Some(40), 3, true),
        ];
        assert_eq!(refused(&sampled), Some(16));
        // CONFIG RESETSTAT.
        assert_eq!(
            refused(&[(Some(5), 0, true), (Some(8), 3, true), (Some(2), 5, true)]),
            Some(5)
        );
        assert_eq!(refused(&[(None, 0, true), (None, 9, true)]), None);
    }
}
