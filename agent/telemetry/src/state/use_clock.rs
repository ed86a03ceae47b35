//! How far back a server's idle times are certain.
//!
//! Redis notes with each key when it was last read, unless the policy has the place of that time for something else.
//! What a key has from another policy, or from a time in which its reads were not noted, stays until the key is used
//! again.

use std::time::Duration;

use evictscope_model::Member;

use crate::{KeyClock, Snapshot};

/// `child_pid` while there is no child: -1.
const NO_CHILD: u64 = u32::MAX as u64;

/// Follows what a server notes with its keys.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UseClock {
    /// Since when it has noted when keys are read: a time, and for how long it had then done so. `None` if it does not.
    notes: Option<(Duration, Duration)>,
    is_known: bool,
    /// When the child under way was first and last seen.
    child: Option<(Duration, Duration)>,
    /// Until when too little time has passed since a child.
    rests_until: Duration,
    /// The longest idle time that is certain; `None` if none is.
    pub certain: Option<Duration>,
}

impl UseClock {
    /// Takes in a snapshot of a server that had run for `age` at the first.
    pub fn take_in(&mut self, snapshot: &Snapshot, age: Duration) {
        let (at, members) = (snapshot.at, snapshot.members.unwrap_or_default());
        self.follow_child(snapshot);
        // A replica does not see what its primary's clients read. If its role was not found, the link to the primary
        // shows it.
        let is_replica = members.get(Member::Masterhost).map(|primary| primary != 0);
        let has_link = members.client_buffers().map(|buffers| buffers.primary > 0);
        let known = is_replica.or(has_link).zip(members.get(Member::MaxmemoryPolicy));
        let is_noting = known.map(|(is_replica, policy)| !is_replica && KeyClock::of(policy) == KeyClock::Reads);
        match is_noting {
            Some(true) if self.notes.is_none() => {
                let before = if self.is_known { Duration::ZERO } else { age };
                self.notes = Some((at, before));
            }
            Some(true) | None => {}
            Some(false) => self.notes = None,
        }
        self.is_known |= is_noting.is_some();
        let is_certain = is_noting.is_some() && self.child.is_none() && at >= self.rests_until;
        self.certain = self.notes.filter(|_| is_certain).map(|(since, before)| before + at.saturating_sub(since));
    }

    /// While a child writes a file, no read is noted, so that no page is copied. A key that is read as often as the
    /// child runs long has been read again when as much time has passed.
    fn follow_child(&mut self, snapshot: &Snapshot) {
        let child = snapshot.members.and_then(|members| members.get(Member::ChildPid));
        let has_child = if let Some(pid) = child { pid != NO_CHILD } else { snapshot.child_ns.is_some() };
        match (self.child, has_child) {
            (child, true) => self.child = Some((child.map_or(snapshot.at, |(first, _)| first), snapshot.at)),
            (Some((first, last)), false) => {
                self.rests_until = snapshot.at + last.saturating_sub(first);
                self.child = None;
            }
            (None, false) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::Member;

    use super::{NO_CHILD, UseClock};
    use crate::{MemberValues, Snapshot};

    const LRU: u64 = 4 << 8 | 1 | 4;
    const LFU: u64 = 5 << 8 | 2 | 4;
    const LRM: u64 = 9 << 8 | 8 | 4;
    const NOEVICTION: u64 = 7 << 8;

    /// Takes in a second each of a policy, a primary and a child, and returns what is certain after each, in seconds.
    /// The server had run for 100 s.
    fn certain(seconds: &[(u64, u64, u64)]) -> Vec<Option<u64>> {
        let mut clock = UseClock::default();
        let mut after = |(at, (policy, primary, child)): (u64, &(u64, u64, u64))| {
            let members =
                [(Member::MaxmemoryPolicy, *policy), (Member::Masterhost, *primary), (Member::ChildPid, *child)];
            let snapshot = Snapshot {
                at: Duration::from_secs(1_000 + at),
                members: Some(MemberValues::from_iter(members)),
                ..Snapshot::default()
            };
            clock.take_in(&snapshot, Duration::from_secs(100));
            clock.certain.map(|certain| certain.as_secs())
        };
        (0..).zip(seconds).map(&mut after).collect()
    }

    #[test]
    fn idle_times_are_as_old_as_the_server_at_most() {
        let (lru, none) = ((LRU, 0, NO_CHILD), (NOEVICTION, 0, NO_CHILD));
        assert_eq!(certain(&[lru, none, lru]), [100, 101, 102].map(Some));
    }

    #[test]
    fn what_another_policy_or_a_primary_left_is_no_idle_time() {
        let [lru, lfu, lrm] = [LRU, LFU, LRM].map(|policy| (policy, 0, NO_CHILD));
        for other in [lfu, lrm, (LRU, 0x7f00, NO_CHILD)] {
            assert_eq!(certain(&[lru, other, other, lru, lru]), [Some(100), None, None, Some(0), Some(1)]);
            assert_eq!(certain(&[other, lru, lru]), [None, Some(0), Some(1)]);
        }
    }

    #[test]
    fn nothing_is_certain_while_a_child_runs_and_for_as_long_after() {
        let (lru, saves) = ((LRU, 0, NO_CHILD), (LRU, 0, 4_711));
        let expected = [Some(100), None, None, None, None, None, Some(106)];
        assert_eq!(certain(&[lru, saves, saves, saves, lru, lru, lru]), expected);
    }
}
