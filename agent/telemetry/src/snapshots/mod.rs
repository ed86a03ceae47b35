//! What is read from a server at one moment: start with [`Snapshot`].

pub(crate) mod candidate;
pub(crate) mod members;
pub(crate) mod moment;
pub(crate) mod parts;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use evictscope_abi::{CallStats, EVICTION, EXPIRE, EvictionStats, ExpireStats, FaultCounts};
use evictscope_model::Member;

use crate::{Candidate, MemberValues, MemoryParts};

/// What the programs have counted for one server. The counters start when the agent attaches to it, and run modulo
/// 2^64.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What was counted for each traced function, the eviction call first.
    pub calls: Vec<CallStats>,
    /// What else was counted for eviction calls.
    pub evictions: EvictionStats,
    /// What else was counted for expire cycles.
    pub expires: ExpireStats,
    /// What the programs could not read or count.
    pub faults: FaultCounts,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            calls: vec![CallStats::default()],
            evictions: EvictionStats::default(),
            expires: ExpireStats::default(),
            faults: FaultCounts::default(),
        }
    }
}

/// For how long eviction calls have been observed since the agent attached to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub evicting: Duration,
    pub noop: Duration,
}

/// At how many sites probes were placed in a file without appearing in the code that the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unrun {
    /// Sites at which the server's memory has no breakpoint.
    pub missing: usize,
    /// Sites that were looked at.
    pub placed: usize,
}

/// How long a main thread has run and waited since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    pub cpu_ns: u64,
    /// Time in which it was ready to run but had no CPU, nanoseconds.
    pub waiting_ns: u64,
}

/// What was read from one server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Monotonic time before it was read: it misses no earlier call.
    pub at: Duration,
    pub counted: Counted,
    /// The server's own counters; `None` if its memory could not be read.
    pub members: Option<MemberValues>,
    /// How many commands it has refused because its memory was full, by its own counter; `None` if that is not known.
    pub refusals: Option<u64>,
    /// Memory that does not count against `maxmemory`, bytes; `None` if that could not be read.
    pub not_counted: Option<u64>,
    /// What its memory is made of, if that was read.
    pub memory: Option<MemoryParts>,
    /// The best key in its eviction pool, if known.
    pub candidate: Option<Candidate>,
    /// The sample of its expired keys that has been completed since the last snapshot.
    pub expired: Option<ExpiredSample>,
    /// The main thread's times; `None` if the kernel does not tell.
    pub times: Option<ThreadTimes>,
    /// Whether the main thread slept in its event loop; `None` if it ran, or if the kernel does not tell.
    pub is_resting: Option<bool>,
    /// For how long the CPU quotas of the process have been used up since they were created; `None` if it has none.
    pub throttled: Option<Duration>,
    /// CPU time of a running process that it has forked, nanoseconds; `None` if none is known.
    pub child_ns: Option<u64>,
    /// When the main thread was at rest, according to [`crate::Rest`]: the last few readings, oldest first.
    pub rests: Vec<Duration>,
    /// What a look at its sockets saw, if one was made.
    pub look: Option<SocketLook>,
    /// For how long calls were observed until then.
    pub observed: Observed,
    /// What the probes have cost the main thread since the last snapshot while the server was sampled, nanoseconds.
    pub spent_ns: f64,
    /// Where the server does not run what probes are in; `None` if it does, as far as is known.
    pub unrun: Option<Unrun>,
}

impl Snapshot {
    pub(crate) fn eviction_times(&self) -> EvictionTimes {
        let evictions = &self.counted.evictions;
        let times = self.counted.calls.first().map(|calls| EvictionTimes {
            since: self.evicting_since().unwrap_or_default(),
            last: Duration::from_nanos(calls.last_inner_ns),
            burst_began: Duration::from_nanos(evictions.burst_began_ns),
            burst_before_ended: Duration::from_nanos(evictions.burst_before_ended_ns),
        });
        times.unwrap_or_default()
    }

    pub(crate) fn member(&self, member: Member) -> Option<u64> {
        self.members.as_ref()?.get(member)
    }

    pub(crate) fn evicting_since(&self) -> Option<Duration> {
        self.under_way_since(EVICTION)
    }

    pub(crate) fn expiring_since(&self) -> Option<Duration> {
        self.under_way_since(EXPIRE)
    }

    /// Returns when the inner call under way of a function began. It ended unseen if the main thread has been at rest
    /// since.
    fn under_way_since(&self, function: u16) -> Option<Duration> {
        let since = Duration::from_nanos(self.counted.calls.get(usize::from(function))?.inner_since_ns);
        let has_rested = self.rests.last().is_some_and(|rest| *rest > since);
        (!since.is_zero() && !has_rested).then_some(since)
    }
}

/// Returns whether calls were observed throughout `elapsed`, given that they were for `observed`: placing probes takes
/// a little time.
pub(crate) fn is_observed(elapsed: Duration, observed: Duration) -> bool {
    observed + elapsed / 20 >= elapsed
}

/// When evicting calls were made. Monotonic; zero means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTimes {
    /// When the evicting call under way passed the goal site.
    pub since: Duration,
    /// When the last evicting call ended.
    pub last: Duration,
    /// When the first evicting call after a quiet time passed the goal site.
    pub burst_began: Duration,
    /// When the last evicting call before that quiet time ended.
    pub burst_before_ended: Duration,
}

/// Of fewer keys, a share says little, and they hold little.
const FEWEST_KEYS: u64 = 100;

/// What a look at random keys with a time to live saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpiredSample {
    /// The server's keys with a time to live.
    pub keys: u64,
    pub looked_at: u64,
    pub expired: u64,
}

impl ExpiredSample {
    /// Returns the share that had expired; `None` if there are too few keys.
    pub fn ratio(self) -> Option<f64> {
        let is_enough = self.keys.min(self.looked_at) >= FEWEST_KEYS;
        is_enough.then(|| self.expired as f64 / self.looked_at as f64)
    }
}

/// The connections of clients of one server at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketLook {
    pub at: Duration,
    /// Connections of clients: TCP and MPTCP over IPv4 and IPv6, and Unix sockets, also those that the server has not
    /// accepted yet.
    pub connected: u32,
    /// Those with bytes that the server has not read.
    pub unread: Vec<Unread>,
    /// Those whose data was all read, and to which nothing has been sent since: TCP only.
    pub owed: Vec<Owed>,
    /// Those whose last answer left lately, and late: TCP only.
    pub answered: Vec<Answered>,
    /// Those that the client has closed while it was owed an answer. They do not count as connected.
    pub gave_up: Vec<GaveUp>,
    /// When something last left on any of them, to a 32nd of a second, if that was in the last seven seconds: TCP only.
    pub sent: Option<Duration>,
    /// Connections by a protocol that is not understood. They do not count as connected.
    pub not_seen: u32,
    /// Who the other ends are; `None` if that is not known, or not wanted.
    pub peers: Option<SeenPeers>,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PeerAddress {
    /// Its address; an IPv4 address that is mapped to IPv6 is an IPv4 address.
    Ip(IpAddr),
    /// Of a Unix socket, the process that has connected it; 0 if the kernel does not say which.
    Process(u32),
}

/// Who the other ends of connections are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenPeers {
    /// How many connections each has. Empty or incomplete if none is `active`.
    pub connections: HashMap<PeerAddress, u32>,
    /// The connections with bytes that were not read, answers that are owed, or answers that were not taken.
    pub active: Vec<ActivePeer>,
}

/// The other end of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActivePeer {
    /// As [`Unread::socket`].
    pub socket: u64,
    pub address: PeerAddress,
    /// Bytes that the server has not read.
    pub unread: u32,
    /// Bytes that the kernel holds for it, because it has not taken them: what `ss` calls Send-Q.
    pub untaken: u32,
    /// How far it has taken them: it changes when it takes more.
    pub taken_to: u32,
    /// When data last left to it, monotonic, to a tick; not known for a Unix socket.
    pub left: Option<Duration>,
}

/// A connection whose last request was read, and on which no answer has left since.
///
/// A client that is blocked on purpose (BLPOP, WAIT, CLIENT PAUSE) looks the same, as does a replica's link. When the
/// main thread comes to rest, the server has answered all that it can: only what has come since then waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owed {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// As [`Unread::read_to`].
    pub read_to: u32,
    /// As [`Unread::answered_to`].
    pub answered_to: u32,
    /// When data last came, monotonic, to a tick.
    pub came: Duration,
    /// Whether the look is certain of it. If not, it is so only if an earlier look was, and no answer was written
    /// since.
    pub is_certain: bool,
}

/// A connection with unread bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Identifies the socket while it lives: its address in the kernel.
    pub socket: u64,
    /// How far the server has read, modulo 2^32: it changes when the server reads. TCP's `copied_seq`; for a Unix
    /// socket, a value that tells one unread message from the next.
    pub read_to: u32,
    /// How far the server has written answers, modulo 2^32 (TCP's `write_seq`); 0 for a Unix socket.
    pub answered_to: u32,
    pub bytes: u32,
    /// When data last came, monotonic, to a tick (`icsk_ack.lrcvtime`); not known for a Unix socket.
    pub came: Option<Duration>,
}

/// A connection in which nothing waits, and whose last answer left later than the request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// When data last came, monotonic, to a tick.
    pub came: Duration,
    /// When data last left (`lsndtime`), likewise.
    pub left: Duration,
}

/// A connection that its client has closed or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaveUp {
    /// As [`Unread::socket`].
    pub socket: u64,
    /// As [`Unread::answered_to`].
    pub answered_to: u32,
    /// When data last came, monotonic, to a tick; not known for a Unix socket.
    pub came: Option<Duration>,
    /// As [`Owed::is_certain`].
    pub is_certain: bool,
}
