//! The values of a server's members, and what they say of its limit.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::{Content, Member};
use serde::{Deserialize, Serialize};

/// Values read together from a server's memory; a value that is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberValues {
    values: [Option<u64>; Member::ALL.len()],
    client_buffers: Option<ClientBuffers>,
    output_limits: Option<OutputLimits>,
}

/// What a client may hold of its replies, `client-output-buffer-limit`: of normal clients, replicas and subscribers
/// each the most, and the most for so many seconds; bytes, 0 if there is no limit.
pub type OutputLimits = [[u64; 3]; 3];

impl Default for MemberValues {
    fn default() -> Self {
        Self { values: [None; Member::ALL.len()], client_buffers: None, output_limits: None }
    }
}

impl MemberValues {
    /// Takes in a member from the words of 8 bytes that were read for it.
    pub fn set(&mut self, member: Member, words: &[u64]) {
        // Threads can free what others allocated, so one of several counters can be negative.
        let sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word));
        self.values[member as usize] = Some(match member.line().content {
            Content::Int => u64::from(sum as u32),
            _ => sum,
        });
        if member == Member::ClientObufLimits {
            let is_one =
                |limits: &OutputLimits| limits.iter().all(|[hard, soft, s]| hard.max(soft) >> 48 == 0 && s >> 32 == 0);
            self.output_limits = OutputLimits::try_from(words.as_chunks().0).ok().filter(is_one);
        }
        if member == Member::StatClientsTypeMemory {
            let class = |index: usize| words.get(index).copied().unwrap_or_default();
            self.client_buffers =
                Some(ClientBuffers { normal: class(0), replica: class(1), pubsub: class(2), primary: class(3) });
        }
    }

    /// Forgets the members for which `is_kept` is false.
    pub fn retain(&mut self, is_kept: impl Fn(Member) -> bool) {
        for member in Member::ALL.iter().filter(|member| !is_kept(**member)) {
            self.values[*member as usize] = None;
            match member {
                Member::StatClientsTypeMemory => self.client_buffers = None,
                Member::ClientObufLimits => self.output_limits = None,
                _ => {}
            }
        }
    }

    /// Returns a member, or the sum of its numbers if it has several.
    pub fn get(&self, member: Member) -> Option<u64> {
        self.values[member as usize]
    }

    pub fn client_buffers(&self) -> Option<ClientBuffers> {
        self.client_buffers
    }

    /// Returns `server.client_obuf_limits[]`.
    pub fn output_limits(&self) -> Option<OutputLimits> {
        self.output_limits
    }

    /// Returns the server's own estimate of the share of keys with a time to live that have expired and are still held,
    /// from 0 to 1: a moving average over expire cycles.
    pub fn stale_ratio(&self) -> Option<f64> {
        let ratio = self.get(Member::StatExpiredStalePerc).map(f64::from_bits);
        ratio.filter(|ratio| (0.0..=1.0).contains(ratio))
    }

    /// Returns the `maxmemory-policy` as `CONFIG` spells it, if it is a known one.
    pub fn policy(&self) -> Option<&'static str> {
        policy_name(self.get(Member::MaxmemoryPolicy)?)
    }
}

impl FromIterator<(Member, u64)> for MemberValues {
    fn from_iter<I: IntoIterator<Item = (Member, u64)>>(values: I) -> Self {
        let mut members = Self::default();
        for (member, value) in values {
            members.set(member, &[value]);
        }
        members
    }
}

/// What a server notes with each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyClock {
    /// When it was last read or written.
    Reads,
    /// When it was last written.
    Writes,
    /// How often it is used.
    Counter,
}

impl KeyClock {
    /// Returns what a server notes whose `maxmemory_policy` has this number.
    pub fn of(policy: u64) -> Self {
        match policy {
            _ if policy & LFU != 0 => Self::Counter,
            _ if policy & LRM != 0 => Self::Writes,
            _ => Self::Reads,
        }
    }
}

/// Flags of policies: server.h has them as `MAXMEMORY_FLAG_LRU` and the others.
const LRU: u64 = 1 << 0;
const LFU: u64 = 1 << 1;
const ALLKEYS: u64 = 1 << 2;
const LRM: u64 = 1 << 3;

/// Returns the name of the policy with this number, if it is known (server.h: `MAXMEMORY_VOLATILE_LRU` and the others,
/// the same since Redis 4.0; the last two since Redis 8.4).
fn policy_name(number: u64) -> Option<&'static str> {
    const NAMES: [(u64, &str); 10] = [
        (LRU, "volatile-lru"),
        (1 << 8 | LFU, "volatile-lfu"),
        (2 << 8, "volatile-ttl"),
        (3 << 8, "volatile-random"),
        (4 << 8 | LRU | ALLKEYS, "allkeys-lru"),
        (5 << 8 | LFU | ALLKEYS, "allkeys-lfu"),
        (6 << 8 | ALLKEYS, "allkeys-random"),
        (7 << 8, "noeviction"),
        (8 << 8 | LRM, "volatile-lrm"),
        (9 << 8 | LRM | ALLKEYS, "allkeys-lrm"),
    ];
    NAMES.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// The memory that the server attributes to its clients, by type, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
pub struct ClientBuffers {
    /// All other clients.
    pub normal: u64,
    /// Replicas that are fed by this server.
    pub replica: u64,
    pub pubsub: u64,
    /// The link to the primary of this server.
    pub primary: u64,
}

impl ClientBuffers {
    /// Returns all client buffers, bytes. Wraps, as the server's own counters do.
    pub fn total(self) -> u64 {
        [self.normal, self.replica, self.pubsub, self.primary].into_iter().fold(0, u64::wrapping_add)
    }
}

/// Why a server evicts nothing, however much memory it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exemption {
    Loading,
    /// It is a replica, and ignores its limit.
    Replica,
}

/// `PAUSE_ACTION_EVICT` of server.h, since Redis 7.2: `CLIENT PAUSE` and a failover stop evictions.
const EVICTIONS_PAUSED: u64 = 1 << 3;
/// `PROTO_REPLY_CHUNK_BYTES` of server.h.
const CHUNK: u64 = 16 << 10;
/// What `freeMemoryGetNotCountedMemory()` assumes that the backlog takes for each of its chunks: a `replBufBlock` and a
/// `listNode`.
const OF_A_CHUNK: u64 = 40 + 24;

impl MemberValues {
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

    /// Returns why the server evicts nothing, however much memory it uses; `None` also if that is not known.
    pub fn exemption(&self) -> Option<Exemption> {
        let is_loading = self.get(Member::Loading).is_some_and(|loading| loading != 0);
        let is_replica = || self.ignores_limit() == Some(true);
        is_loading.then_some(Exemption::Loading).or_else(|| is_replica().then_some(Exemption::Replica))
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
    use evictscope_model::Member;

    use super::MemberValues;

    #[test]
    fn a_member_is_what_its_bytes_say() {
        let mut members = MemberValues::default();
        members.set(Member::UsedMemory, &[u64::MAX, 11]);
        assert_eq!(members.get(Member::UsedMemory), Some(10));
        // What follows an `int` is not part of it.
        members.set(Member::MaxmemoryPolicy, &[7 << 8 | 99 << 32]);
        assert_eq!(members.policy(), Some("noeviction"));
        members.set(Member::StatClientsTypeMemory, &[1, 2, 3, 4]);
        assert_eq!(members.get(Member::StatClientsTypeMemory), Some(10));
        let classes = members.client_buffers();
        assert_eq!(classes.map(|classes| classes.primary), Some(4));
        let limits = [[0, 0, 0], [256 << 20, 64 << 20, 60], [32 << 20, 8 << 20, 60]];
        members.set(Member::ClientObufLimits, limits.as_flattened());
        assert_eq!(members.output_limits(), Some(limits));
        // Nobody set that.
        members.set(Member::ClientObufLimits, &[0x7f00_1234_5678; 9]);
        assert_eq!(members.output_limits(), None);
        members.retain(|member| member != Member::StatClientsTypeMemory);
        assert_eq!(members.client_buffers(), None);
        assert_eq!(members.get(Member::StatClientsTypeMemory), None);
        assert_eq!(members.get(Member::UsedMemory), Some(10));
    }

    #[test]
    fn a_stale_ratio_is_a_share() {
        let read = |bits| MemberValues::from_iter([(Member::StatExpiredStalePerc, bits)]).stale_ratio();
        for share in [0.0_f64, 0.0512, 1.0] {
            assert_eq!(read(share.to_bits()), Some(share));
        }
        for none in [-0.01_f64, 1.01, 5.12, f64::NAN, f64::INFINITY] {
            assert_eq!(read(none.to_bits()), None, "{none}");
        }
        // All bits set: not a number either.
        assert_eq!(read(u64::MAX), None);
    }

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
            MemberValues::from_iter(usual.into_iter().chain(changed.iter().copied()))
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
            MemberValues::from_iter(members).replicas_not_counted()
        };
        assert_eq!(of(1_000_000), Some(0));
        assert_eq!(of(1_052_736), Some(0));
        assert_eq!(of(1_052_737), Some(1));
        assert_eq!(MemberValues::default().replicas_not_counted(), None);
    }
}
