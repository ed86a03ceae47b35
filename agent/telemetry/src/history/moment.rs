//! The state of a server at one moment, as records and pages keep it.

use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::Member;
use serde::{Deserialize, Serialize};

use crate::units::microseconds;
use crate::{Candidate, ClientBuffers, Phase, ServerState, Snapshot, StallCause, Waits};

/// Client buffers below this many bytes are nothing unusual, as in the alert EvictscopeClientBuffersSwelling.
const MUCH: u64 = 16 << 20;

/// A server at one moment. The agent's counters start when it attaches to the server; the difference between two
/// moments is what happened between them. A value that is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
pub struct Moment {
    /// Time since 1970, microseconds; 0 until it leaves the [`Timeline`](crate::Timeline), which dates it.
    pub unix_us: u64,
    /// The phase that it was in, as far as was known then; `None` if evicting calls are not seen.
    pub phase: Option<Phase>,
    /// Memory tracked by the allocator, bytes.
    pub used_memory: Option<u64>,
    /// `server.maxmemory`, bytes.
    pub maxmemory: Option<u64>,
    /// Replication and AOF buffers, which do not count against `maxmemory`, bytes.
    pub not_counted: Option<u64>,
    /// Client buffers by class.
    pub client_buffers: Option<ClientBuffers>,
    /// The server's own counter of commands.
    pub commands: Option<u64>,
    /// The server's own counter of evicted keys.
    pub evicted_keys: Option<u64>,
    /// The server's own counter of expired keys.
    pub expired_keys: Option<u64>,
    /// The server's own estimate of the share of keys with a time to live that have expired and are still held.
    pub stale_ratio: Option<f64>,
    /// The share of these that had expired and were held by the last sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_held: Option<f64>,
    /// Evicting calls that have ended.
    pub evicting_calls: u64,
    /// Wall time in evicting calls, microseconds.
    pub evicting_us: u64,
    /// For how long evicting calls were observed, microseconds.
    pub observed_us: u64,
    /// Wall time in expire cycles, microseconds.
    pub expiring_us: Option<u64>,
    /// CPU time of the main thread, microseconds.
    pub cpu_us: Option<u64>,
    /// Time in which the main thread wanted a CPU and had none, microseconds.
    pub waiting_us: Option<u64>,
    /// Connections in which requests waited at the last look.
    pub clients_waiting: Option<u64>,
    /// How long the oldest of these requests had waited, microseconds; 0 if there was none.
    pub longest_wait_us: Option<u64>,
    /// For how long clients have been stalled, microseconds.
    pub stalled_us: Option<u64>,
    /// What stalled them since the moment before; `None` if nothing did.
    pub stalled_by: Option<StallCause>,
    /// Commands that were refused because no key could be evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u64>,
    /// CPU time of the process that the server had forked to write an RDB or AOF file, microseconds; `None` if none was
    /// known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_us: Option<u64>,
    /// For how long its CPU quotas were used up, summed over all CPUs, microseconds; `None` if it is under no known
    /// quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<u64>,
    /// For how long the longest-idle key of its eviction pool had not been used, seconds; only under LRU policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_idle_s: Option<u32>,
    /// The server's own counters of lookups that found their key and of lookups that did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookups: Option<(u64, u64)>,
}

impl Moment {
    /// Returns the state of a server whose last snapshot has been applied to `state`. `times_cycles` is whether its
    /// expire cycles are timed.
    pub fn new(snapshot: &Snapshot, state: &ServerState, phase: Option<Phase>, times_cycles: bool) -> Self {
        let members = state.members.unwrap_or_default();
        let waits = state.known_waits();
        Self {
            unix_us: 0,
            phase,
            used_memory: members.get(Member::UsedMemory),
            maxmemory: members.get(Member::Maxmemory),
            not_counted: state.not_counted,
            client_buffers: members.client_buffers(),
            commands: members.get(Member::StatNumcommands),
            evicted_keys: members.get(Member::StatEvictedkeys),
            expired_keys: members.get(Member::StatExpiredkeys),
            stale_ratio: members.stale_ratio(),
            expired_held: state.expired_held(),
            evicting_calls: state.eviction().inner.count(),
            evicting_us: state.evicting_ns() / 1_000,
            observed_us: microseconds(state.observed.evicting),
            expiring_us: times_cycles.then(|| state.expiring_ns() / 1_000),
            cpu_us: snapshot.times.map(|times| times.cpu_ns / 1_000),
            waiting_us: snapshot.times.map(|times| times.waiting_ns / 1_000),
            clients_waiting: waits.map(Waits::waiting),
            longest_wait_us: waits.map(|waits| microseconds(waits.oldest_wait())),
            stalled_us: state.stalled_in_all().map(microseconds),
            stalled_by: state.stalled_by(),
            refused: state.refused(),
            child_us: snapshot.child_ns.map(|ns| ns / 1_000),
            throttled_us: state.main_thread.throttled.map(microseconds),
            candidate_idle_s: (state.candidate.and_then(Candidate::idle))
                .map(|idle| u32::try_from(idle.as_secs()).unwrap_or(u32::MAX)),
            lookups: (members.get(Member::StatKeyspaceHits)).zip(members.get(Member::StatKeyspaceMisses)),
        }
    }

    /// Returns the share of `maxmemory` that client buffers take, except those of replicas, which may be shared. It is
    /// 0 if they are so small that a few clients have them at any time, and `None` if it is not known or there is no
    /// limit.
    pub fn buffers_share(&self) -> Option<f64> {
        let limit = self.maxmemory.filter(|limit| *limit > 0)?;
        let buffers = self.client_buffers?;
        let taken = buffers.total().wrapping_sub(buffers.replica);
        let is_much = taken >= MUCH;
        Some(if is_much { taken as f64 / limit as f64 } else { 0.0 })
    }

    /// Returns its time since 1970.
    pub fn unix_time(&self) -> Duration {
        Duration::from_micros(self.unix_us)
    }
}

/// Returns the share of lookups between the first and the last moment that found their key; `None` if there were no
/// lookups or the counters were reset.
pub fn found_share(moments: impl Iterator<Item = Moment>) -> Option<f64> {
    let mut lookups = moments.filter_map(|moment| moment.lookups);
    let first = lookups.next()?;
    let last = lookups.last()?;
    let hits = last.0.checked_sub(first.0)?;
    let all = hits + last.1.checked_sub(first.1)?;
    (all > 0).then(|| hits as f64 / all as f64)
}
