//! Commands that were refused because no key could be evicted.
//!
//! Redis tries to evict before each command. If that fails, it answers commands that may take memory with the error
//! `OOM`, and executes the others. So failing calls say little: a server with many reads makes tens of thousands of
//! them a second, and refuses nothing. Nor do errors of all kinds, which clients get for other reasons as well. The
//! server counts that error alone, once for each command of a transaction that it refuses to queue, and, since Redis
//! 7.0, also in scripts.

use evictscope_model::Member;

use crate::Snapshot;
use crate::totals::Unreset;

#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
    counter: Unreset,
    /// How many commands were refused; `None` if that is not known now.
    pub total: Option<u64>,
    /// The server's refusals and its errors of all kinds at the last snapshot.
    last: Option<(u64, u64)>,
    /// There were more refusals than errors: one of the two is something else.
    is_contradicted: bool,
}

impl Refused {
    pub fn take_in(&mut self, snapshot: &Snapshot) {
        let errors = snapshot.members.and_then(|members| members.get(Member::StatTotalErrorReplies));
        // Refusals are read after errors. A counter that has fallen was reset, and so was the other.
        if let (Some(errors), Some((refusals, before))) = (errors, self.last) {
            self.is_contradicted |= errors >= before && refusals > errors;
        }
        let refusals = snapshot.refusals.filter(|_| !self.is_contradicted);
        self.last = refusals.zip(errors);
        self.total = self.counter.advance(refusals);
    }
}

#[cfg(test)]
mod tests {
    use evictscope_model::Member;

    use super::Refused;
    use crate::{MemberValues, Snapshot};

    /// Takes in snapshots of refusals and errors, and returns how many commands were refused by then.
    fn refused(snapshots: &[(Option<u64>, u64)]) -> Vec<Option<u64>> {
        let mut refused = Refused::default();
        let mut after = |(refusals, errors): &(Option<u64>, u64)| {
            refused.take_in(&Snapshot {
                members: Some(MemberValues::from_iter([(Member::StatTotalErrorReplies, *errors)])),
                refusals: *refusals,
                ..Snapshot::default()
            });
            refused.total
        };
        snapshots.iter().map(&mut after).collect()
    }

    #[test]
    fn refusals_are_counted_and_what_is_not_known_is_not_said() {
        // CONFIG RESETSTAT.
        assert_eq!(refused(&[(Some(4), 9), (Some(7), 12), (Some(2), 2), (Some(3), 3)]), [0, 3, 5, 6].map(Some));
        let gap = [(None, 0), (Some(4), 4), (None, 9), (Some(6), 9)];
        assert_eq!(refused(&gap), [None, Some(0), None, Some(2)]);
        assert_eq!(refused(&[(Some(40), 9), (Some(41), 10), (Some(41), 10)]), [Some(0), None, None]);
    }
}
