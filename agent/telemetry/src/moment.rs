//! What a server was at one moment, as records and pages keep it.

use std::time::Duration;

use evictscope_plan::Member;
use serde::{Deserialize, Serialize};

use super::units::microseconds;
use super::{ClientBuffers, Phase, ServerState, Snapshot, StallCause, Waits};

/// A server at one moment. Counters run since the server was attached to; the difference of two moments is what happened
/// between them. What is not known is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    /// Time since 1970, microseconds.
    pub unix_us: u64,
    /// The phase that it was in, as far as was known then; `None` where evicting calls are not seen.
    pub phase: Option<Phase>,
    /// Memory tracked by the allocator, bytes.
    pub used_memory: Option<u64>,
    /// `server.maxmemory`, bytes.
    pub maxmemory: Option<u64>,
    /// Replication and AOF buffers (`overhead`) at the last evicting call, bytes.
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
    /// In how many connections requests waited at the last look.
    pub clients_waiting: Option<u64>,
    /// How long the oldest of these requests had waited, microseconds; 0 where there was none.
    pub longest_wait_us: Option<u64>,
    /// For how long clients have been stalled, microseconds.
    pub stalled_us: Option<u64>,
    /// By what they were since the moment before; `None` where they were not.
    pub stalled_by: Option<StallCause>,
}

impl Moment {
    /// Returns what a server was whose last snapshot has been applied to `state`. `times_cycles` tells whether its expire
    /// cycles are timed.
    pub fn new(
        snapshot: &Snapshot,
        state: &ServerState,
        phase: Option<Phase>,
        times_cycles: bool,
    ) -> Self {
        let members = state.members.unwrap_or_default();
        let waits = state.known_waits();
        Self {
            unix_us: microseconds(snapshot.unix_time),
            phase,
            used_memory: members.get(Member::UsedMemory),
            maxmemory: members.get(Member::Maxmemory),
            not_counted: state.counted.evictions.last.overhead.get(),
            client_buffers: members.client_buffers(),
            commands: members.get(Member::StatNumcommands),
            evicted_keys: members.get(Member::StatEvictedkeys),
            expired_keys: members.get(Member::StatExpiredkeys),
            stale_ratio: members.stale_ratio(),
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
        }
    }

    /// Returns its time since 1970.
    pub fn unix_time(&self) -> Duration {
        Duration::from_micros(self.unix_us)
    }
}
