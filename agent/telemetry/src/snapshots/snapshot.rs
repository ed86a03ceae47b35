//! What was read of one server at one moment.

use std::time::Duration;

use evictscope_abi::{CallStats, EXPIRE, EvictionStats, ExpireStats, FaultCounts};

use crate::{Candidate, Members, SocketLook};

/// What the programs have counted of one server. Its counters run since the server was attached to, modulo
/// 2^64.
#[derive(Clone, Debug)]
pub struct Counted {
    /// What was counted of each traced function's calls, the eviction call first.
    pub calls: Vec<CallStats>,
    /// What else was counted of eviction calls.
    pub evictions: EvictionStats,
    /// What else was counted of expire cycles.
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

/// For how long eviction calls were observed since the server was attached to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The evicting ones.
    pub evicting: Duration,
    /// The others.
    pub noop: Duration,
}

/// How long a main thread has run, and waited, since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTimes {
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
    /// Time in which it was ready to run but had no CPU, nanoseconds.
    pub waiting_ns: u64,
}

/// What was read of one server at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Monotonic time before it was read: no call that it misses is earlier.
    pub at: Duration,
    /// The same moment as time since 1970.
    pub unix_time: Duration,
    /// What the programs have counted.
    pub counted: Counted,
    /// The server's own counters; `None` where its memory could not be read.
    pub members: Option<Members>,
    /// How many keys it has, where they were counted.
    pub keys: Option<u64>,
    /// The best key in its eviction pool, where that is known.
    pub candidate: Option<Candidate>,
    /// The main thread's times; `None` where the kernel does not tell.
    pub times: Option<ThreadTimes>,
    /// Whether the main thread slept in its event loop; `None` where it ran, or where the kernel does not tell.
    pub is_resting: Option<bool>,
    /// For how long the CPU quotas that the process is under were used up, since they were made; `None` where it is under none.
    pub throttled: Option<Duration>,
    /// CPU time of a process that it has forked and that runs, nanoseconds; `None` where none is known of.
    pub child_ns: Option<u64>,
    /// When the main thread last came to rest, as [`crate::Rest`] has it.
    pub rested: Option<Duration>,
    /// What a look at its sockets saw, where one was made.
    pub look: Option<SocketLook>,
    /// For how long calls were observed until then.
    pub observed: Observed,
}

impl Snapshot {
    /// Returns when the evicting call under way began.
    pub(crate) fn evicting_since(&self) -> Option<Duration> {
        under_way_since(self.counted.calls.first()?)
    }

    /// Returns when the expire cycle under way began.
    pub(crate) fn expiring_since(&self) -> Option<Duration> {
        under_way_since(self.counted.calls.get(usize::from(EXPIRE))?)
    }
}

/// Returns when the inner call under way began.
pub(crate) fn under_way_since(calls: &CallStats) -> Option<Duration> {
    (calls.inner_since_ns > 0).then(|| Duration::from_nanos(calls.inner_since_ns))
}

/// Tells whether calls were observed in a time, of which they were for `observed`; placing probes takes a little
/// of it.
pub(crate) fn is_observed(elapsed: Duration, observed: Duration) -> bool {
    observed + elapsed / 20 >= elapsed
}
