//! A snapshot as a line of text, so that what follows from real ones can be judged again and again.
//!
//! `RUST_LOG=info,readings=trace evictscope run` logs one at each reading.

use std::time::Duration;

use evictscope_plan::Member;
use serde::{Deserialize, Serialize};

use super::Snapshot;

/// What of a snapshot phases, bursts and stalls by evictions rest on. Times are monotonic nanoseconds, sizes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedReading {
    at: u64,
    /// The same moment since 1970.
    unix: u64,
    observed: u64,
    cpu: Option<u64>,
    waiting: Option<u64>,
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
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl RecordedReading {
    /// Keeps what is needed of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let calls = snapshot.counted.calls.first();
        let calls = calls.copied().unwrap_or_default();
        let evictions = &snapshot.counted.evictions;
        let members = snapshot.members.unwrap_or_default();
        Self {
            at: nanoseconds(snapshot.at),
            unix: nanoseconds(snapshot.unix_time),
            observed: nanoseconds(snapshot.observed.evicting),
            cpu: snapshot.times.map(|times| times.cpu_ns),
            waiting: snapshot.times.map(|times| times.waiting_ns),
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
        }
    }
}

#[cfg(test)]
mod tests;
