//! Whether `maxmemory` applies to a server now, and how much of its memory does not count: what `performEvictions()`
//! asks before it evicts, from the same members.

use evictscope_model::Member;

use crate::Members;

/// `PAUSE_ACTION_EVICT` of server.h, since Redis 7.2: `CLIENT PAUSE` and a failover stop evictions.
const EVICTIONS_PAUSED: u64 = 1 << 3;
/// `PROTO_REPLY_CHUNK_BYTES` of server.h.
const CHUNK: u64 = 16 << 10;
/// What `freeMemoryGetNotCountedMemory()` assumes that the backlog takes for each of its chunks: a `replBufBlock` and a
/// `listNode`.
const OF_A_CHUNK: u64 = 40 + 24;

impl Members {
    /// Returns whether the server is a replica.
    pub fn is_replica(&self) -> Option<bool> {
        Some(self.get(Member::Masterhost)? != 0)
    }

    /// Returns whether the server is a replica that ignores its limit, as replicas do by default.
    pub fn ignores_limit(&self) -> Option<bool> {
        Some(self.is_replica()? && self.get(Member::ReplSlaveIgnoreMaxmemory)? != 0)
    }

    /// Returns whether the server has a limit and evicts where its memory exceeds that. None
    /// does while it loads, or while evictions are paused (before Redis 7.2, that is not known).
    pub fn limit_applies(&self) -> Option<bool> {
        let is = |member| Some(self.get(member)? != 0);
        let ignores = self.ignores_limit()?;
        let paused = self.get(Member::PausedActions).unwrap_or_default();
        let is_paused = paused & EVICTIONS_PAUSED != 0;
        Some(is(Member::Maxmemory)? && !ignores && !is(Member::Loading)? && !is_paused)
    }

    /// Returns how much of the buffer that all replicas share does not count, bytes: what the backlog would not hold
    /// anyway. `None` before Redis 7.0, where each replica has its own.
    pub fn replicas_not_counted(&self) -> Option<u64> {
        let backlog = self.get(Member::ReplBacklogSize)?;
        let counted = backlog.checked_add((backlog / CHUNK + 1) * OF_A_CHUNK)?;
        Some(self.get(Member::ReplBufferMem)?.saturating_sub(counted))
    }
}

#[cfg(test)]
mod tests {
    use super::{Member, Members};

    #[test]
    fn a_limit_applies_where_the_server_would_evict() {
        let server = |changed: &[(Member, u64)]| {
            let usual = [
                (Member::Maxmemory, 1 << 20),
                (Member::Masterhost, 0),
                (Member::ReplSlaveIgnoreMaxmemory, 1),
                (Member::Loading, 0),
                (Member::PausedActions, 0),
            ];
            Members::from_iter(usual.into_iter().chain(changed.iter().copied()))
        };
        let replica = (Member::Masterhost, 0x7f00_0000_1000);
        for (changed, applies) in [
            (&[][..], true),
            (&[replica], false),
            (&[replica, (Member::ReplSlaveIgnoreMaxmemory, 0)], true),
            (&[(Member::Maxmemory, 0)], false),
            (&[(Member::Loading, 1)], false),
            (&[(Member::PausedActions, 0b1101)], false),
            (&[(Member::PausedActions, 0b0100)], true),
        ] {
            assert_eq!(server(changed).limit_applies(), Some(applies), "{changed:?}");
        }
        let mut unknown = server(&[replica]);
        unknown.retain(|member| member != Member::Masterhost);
        assert_eq!(unknown.limit_applies(), None);
        assert_eq!(unknown.is_replica(), None);
    }

    /// The numbers are those of a redis-server 7.0.15 with a stopped replica: `mem_total_replication_buffers`,
    /// `repl_backlog_size` and `mem_not_counted_for_evict` of its `INFO`.
    #[test]
    fn what_the_backlog_would_hold_anyway_counts() {
        let of = |buffer| {
            let members = [(Member::ReplBacklogSize, 1 << 20), (Member::ReplBufferMem, buffer)];
            Members::from_iter(members).replicas_not_counted()
        };
        assert_eq!(of(1_000_000), Some(0));
        assert_eq!(of(1_052_736), Some(0));
        assert_eq!(of(1_052_737), Some(1));
        assert_eq!(Members::default().replicas_not_counted(), None);
    }
}
