//! A snapshot reduced to the values that phases and bursts need, with its time.

use std::time::Duration;

use evictscope_abi::{Activity, Member};

use super::{Members, ServerState, Snapshot};

/// When evicting calls were made, as the kernel timed them. Monotonic; zero is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTimes {
    /// The evicting call under way passed the goal site.
    pub since: Duration,
    /// The last evicting call ended.
    pub last: Duration,
    /// The first evicting call after a quiet time passed the goal site.
    pub burst_began: Duration,
    /// The last evicting call before that quiet time ended.
    pub burst_before_ended: Duration,
}

/// A server at one moment, as far as phases and bursts need it. What is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Monotonic time of the snapshot.
    pub at: Duration,
    /// The same moment as time since 1970.
    pub unix_time: Duration,
    /// When evicting calls were made.
    pub evictions: EvictionTimes,
    /// Evicting calls since the server was found.
    pub evicting_calls: u64,
    /// `mem_reported` of the last evicting call that ended, bytes.
    pub last_reported: Option<u64>,
    /// CPU time of the main thread inside evicting calls, nanoseconds.
    pub cpu_eviction_ns: Option<u64>,
    /// CPU time of the main thread elsewhere, nanoseconds.
    pub cpu_other_ns: Option<u64>,
    /// How long the main thread was ready to run and had no CPU, nanoseconds.
    pub waiting_ns: Option<u64>,
    /// The server's own counter of commands.
    pub commands: Option<u64>,
    /// The server's own counter of evicted keys.
    pub evicted_keys: Option<u64>,
    /// Memory tracked by the allocator, bytes.
    pub used_memory: Option<u64>,
    /// The lowest of it since the last evicting call, by the kernel's samples, bytes; `None` where one is
    /// under way.
    pub lowest_memory: Option<u64>,
    /// All client buffers, bytes.
    pub client_buffers: Option<u64>,
}

impl Observation {
    /// Observes a server whose last snapshot has been applied to `state`.
    pub fn new(
        at: Duration,
        unix_time: Duration,
        snapshot: &Snapshot,
        state: &ServerState,
        waiting_ns: Option<u64>,
    ) -> Self {
        let (evictions, samples) = (&snapshot.evictions, &snapshot.samples);
        let times = snapshot.calls.first().map(|calls| EvictionTimes {
            since: Duration::from_nanos(calls.inner_since_ns),
            last: Duration::from_nanos(calls.last_inner_ns),
            burst_began: Duration::from_nanos(evictions.burst_began_ns),
            burst_before_ended: Duration::from_nanos(evictions.burst_before_ended_ns),
        });
        let times = times.unwrap_or_default();
        let cpu = |activity| u64::try_from(state.cpu_ns(activity)?).ok();
        // Samples since an earlier call do not count.
        let is_since_last = times.since.is_zero()
            && samples.lowest_since_ns != 0
            && Duration::from_nanos(samples.lowest_since_ns) == times.last;
        let member = |member| state.members?.get(member);
        let client_buffers = state.members.as_ref().and_then(Members::client_buffers);
        Self {
            at,
            unix_time,
            evictions: times,
            evicting_calls: state.eviction().inner.count(),
            last_reported: Some(evictions.last_reported).filter(|bytes| *bytes > 0),
            cpu_eviction_ns: cpu(Activity::Eviction),
            cpu_other_ns: cpu(Activity::Other),
            waiting_ns,
            commands: member(Member::CommandsProcessed),
            evicted_keys: member(Member::EvictedKeys),
            used_memory: state.members.as_ref().and_then(Members::used_memory),
            lowest_memory: is_since_last.then_some(samples.lowest_memory),
            client_buffers: client_buffers.map(|buffers| buffers.total()),
        }
    }
}
