//! A snapshot as a line of text, so that conclusions from real ones can be checked again and again.
//!
//! `RUST_LOG=info,readings=trace evictscope run` logs one at each reading.

use evictscope_model::Member;
use serde::{Deserialize, Serialize};

use crate::units::nanoseconds;
use crate::{ServerState, Snapshot};

/// The parts of a snapshot that phases, bursts and stalls by evictions depend on. Times are monotonic nanoseconds,
/// sizes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReading {
    at: u64,
    /// The same moment since 1970.
    unix: u64,
    observed: u64,
    cpu: Option<u64>,
    waiting: Option<u64>,
    is_resting: Option<bool>,
    rested: Option<u64>,
    /// Evicting calls that have ended, and their wall time.
    calls: u64,
    evicting: u64,
    since: u64,
    last: u64,
    burst_began: u64,
    burst_before_ended: u64,
    reported: Option<u64>,
    commands: Option<u64>,
    evicted_keys: Option<u64>,
    used_memory: Option<u64>,
    client_buffers: Option<u64>,
    /// What the look saw, if one was made.
    look: Option<RecordedLook>,
}

/// What a look at the sockets saw.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct RecordedLook {
    at: u64,
    connected: u64,
    waiting: u64,
    /// Since when the oldest request had been waiting.
    oldest: Option<u64>,
}

impl RecordedReading {
    /// Returns the parts needed from a snapshot that has been applied to `state`; `since_1970` dates it.
    pub fn of(snapshot: &Snapshot, state: &ServerState, since_1970: std::time::Duration) -> Self {
        let calls = snapshot.counted.calls.first();
        let calls = calls.copied().unwrap_or_default();
        let evictions = &snapshot.counted.evictions;
        let members = snapshot.members.unwrap_or_default();
        Self {
            at: nanoseconds(snapshot.at),
            unix: nanoseconds(since_1970 + snapshot.at),
            observed: nanoseconds(snapshot.observed.evicting),
            cpu: snapshot.times.map(|times| times.cpu_ns),
            waiting: snapshot.times.map(|times| times.waiting_ns),
            is_resting: snapshot.is_resting,
            rested: snapshot.rests.last().copied().map(nanoseconds),
            calls: calls.inner.counts.iter().sum(),
            evicting: calls.inner.sum,
            since: calls.inner_since_ns,
            last: calls.last_inner_ns,
            burst_began: evictions.burst_began_ns,
            burst_before_ended: evictions.burst_before_ended_ns,
            reported: evictions.last.reported.get(),
            commands: members.get(Member::StatNumcommands),
            evicted_keys: members.get(Member::StatEvictedkeys),
            used_memory: members.get(Member::UsedMemory),
            client_buffers: members.get(Member::StatClientsTypeMemory),
            look: snapshot.look.as_ref().map(|look| RecordedLook {
                at: nanoseconds(look.at),
                connected: state.waits.connected(),
                waiting: state.waits.waiting(),
                oldest: state.waits.oldest().map(nanoseconds),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
