//! Commands that were refused because no key could be evicted.
//!
//! Redis tries to evict before each command. If that fails, it answers commands that may take memory with an error, and executes
//! the others. So failing calls say little: a server with many reads makes tens of thousands of them a second, and refuses
//! nothing.

use std::time::Duration;

use evictscope_plan::Member;

use crate::Snapshot;
use crate::unreset::Unreset;

/// Calls no longer fail once they have been observed for this long without a failure. If the probes are on for some milliseconds
/// at a time, the first of these may have had no call.
const NONE_FAILED: Duration = Duration::from_millis(100);

/// Counts refused commands: the errors that a server answered while its evicting calls failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    total: Option<u64>,
    errors: Unreset,
    /// Errors and failing calls at the last snapshot.
    last: Option<(u64, u64)>,
    /// For how long calls had been observed when one was last seen to have failed.
    failed_at: Option<Duration>,
    is_failing: bool,
}

impl Refused {
    /// Returns how many commands were refused; `None` if the server's errors are not known.
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
        let last = self.last.replace((errors, failed_calls));
        let total = self.total.get_or_insert(0);
        let Some((errors_before, failed_before)) = last else {
            return;
        };
        let observed = snapshot.observed.evicting;
        if failed_calls > failed_before {
            self.failed_at = Some(observed);
        }
        let was_failing = self.is_failing;
        // An error may be counted a moment after the call that failed for it.
        let is_recent = |at| observed.saturating_sub(at) < NONE_FAILED;
        self.is_failing = self.failed_at.is_some_and(is_recent);
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

    /// Takes in snapshots of errors, failing calls, and the milliseconds for which calls were observed since the one before.
    fn refused(snapshots: &[(Option<u64>, u64, u64)]) -> Option<u64> {
        let (mut refused, mut evicting) = (Refused::default(), Duration::ZERO);
        for (errors, failed, observed) in snapshots {
            evicting += Duration::from_millis(*observed);
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
        let calm = [(Some(5), 0, 100), (Some(9), 0, 100), (Some(12), 0, 100)];
        assert_eq!(refused(&calm), Some(0), "errors for other reasons");
        let read_only = [(Some(5), 0, 100), (Some(5), 90_000, 100)];
        assert_eq!(refused(&read_only), Some(0), "nothing was written");
        let full = [
            (Some(5), 0, 100),
            (Some(8), 3, 100),
            (Some(9), 4, 100),
            (Some(9), 4, 100),
        ];
        assert_eq!(refused(&full), Some(4));
        // Probes are off for some of the time.
        let sampled = [
            (Some(5), 0, 100),
            (Some(8), 3, 100),
            (Some(20), 3, 0),
            (Some(21), 3, 100),
            (Some(40), 3, 100),
        ];
        assert_eq!(refused(&sampled), Some(16));
        // They are on so briefly that no call is made meanwhile.
        let briefly = [
            (Some(5), 0, 100),
            (Some(8), 3, 100),
            (Some(9), 3, 5),
            (Some(19), 3, 0),
            (Some(20), 4, 5),
        ];
        assert_eq!(refused(&briefly), Some(15));
        // CONFIG RESETSTAT.
        assert_eq!(
            refused(&[(Some(5), 0, 100), (Some(8), 3, 100), (Some(2), 5, 100)]),
            Some(5)
        );
        assert_eq!(refused(&[(None, 0, 100), (None, 9, 100)]), None);
    }
}
