//! The answers of the agent's API: what the daemon writes, and what `watch`, `report` and the tests read.
//!
//! Values that are not known are `null`. docs/METRICS.md says what they mean.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::burst::Burst;
use crate::time::UnixTime;

/// The answer of `GET /api/v1/bursts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct BurstList {
    /// For each server, the oldest first; servers that have ended come first.
    pub bursts: Vec<ListedBurst>,
}

/// A finished burst as it is listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "docs/METRICS.md has a table of them")]
pub struct ListedBurst {
    pub server: String,
    /// Its first evicting call.
    pub start: Option<UnixTime>,
    /// The end of its last evicting call.
    pub end: Option<UnixTime>,
    /// [`BurstKind`](crate::BurstKind), as its label.
    pub kind: String,
    /// Why it is of that kind.
    pub reason: String,
    pub hint: Option<String>,
    /// The name of its record.
    pub record: Option<String>,
    /// How far memory fell after it.
    pub reclaimed_bytes: Option<u64>,
    #[serde(flatten)]
    pub burst: Burst,
}

impl ListedBurst {
    /// Lists a burst that is dated, and has this record.
    pub fn new(server: &str, burst: Burst, record: Option<String>) -> Self {
        let (kind, reason) = burst.kind();
        Self {
            server: server.to_owned(),
            start: UnixTime::new(burst.started),
            end: UnixTime::new(burst.started + burst.duration),
            kind: kind.to_string(),
            reason,
            hint: burst.expiry_behind(),
            record,
            reclaimed_bytes: burst.reclaimed(),
            burst,
        }
    }
}

/// The answer of `GET /api/v1/timeline`: the last ten minutes of one server, in bins of the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimelineAnswer {
    /// Its name.
    pub server: String,
    /// When the first bin began.
    pub start: Option<UnixTime>,
    /// How long a bin is.
    pub bin_seconds: f64,
    /// The time in each bin that was spent in evicting calls.
    pub eviction_call_seconds: Vec<Option<f64>>,
    /// The CPU time of the main thread in evicting calls.
    pub cpu_eviction_seconds: Vec<Option<f64>>,
    /// The CPU time of the main thread elsewhere.
    pub cpu_other_seconds: Vec<Option<f64>>,
    /// The oldest first.
    pub samples: Vec<TimelineSample>,
}

/// A reading of a server. What is counted is counted since the server was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "docs/METRICS.md says what they are")]
pub struct TimelineSample {
    pub time: Option<UnixTime>,
    pub used_memory_bytes: Option<u64>,
    pub client_buffers_bytes: Option<u64>,
    pub commands_processed: Option<u64>,
    pub clients_waiting: Option<u64>,
    pub longest_wait_seconds: Option<f64>,
    pub stall_seconds: Option<f64>,
}

/// The answer of `GET /api/v1/commands`: what a server's own counters say of its commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "docs/METRICS.md says what they are")]
pub struct CommandsAnswer {
    pub server: String,
    /// Until when all this is known.
    pub time: Option<UnixTime>,
    /// Those that were called or refused, as `INFO commandstats` counts them.
    pub commands: Vec<CommandTotals>,
    /// Commands without counters, such as those of modules, since the agent found the server.
    pub other_calls: Option<u64>,
}

/// The counters of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "their names are those of INFO")]
pub struct CommandTotals {
    pub command: String,
    pub calls: u64,
    pub microseconds: u64,
    pub rejected_calls: u64,
    pub failed_calls: u64,
}

/// The answer of `GET /api/v1/evidence`: where a server's time and memory went, and whose requests wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EvidenceAnswer {
    /// The server's name.
    pub server: String,
    /// Shares of the main thread's time in the last ten minutes, and in the last ten seconds.
    pub time: Vec<ThenAndNow>,
    /// Bytes of each part of memory a minute ago, or when the server was found, and now; the last is their sum.
    pub memory: Vec<ThenAndNow>,
    /// Whose requests wait and who does not read answers now, in sentences without full stops.
    pub who: Vec<String>,
}

/// A value at two times, or in two; `None` if it is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "their names say what they are")]
pub struct ThenAndNow {
    pub name: String,
    pub then: Option<f64>,
    pub now: Option<f64>,
}

impl ThenAndNow {
    /// Returns by how much it has grown, if it has.
    pub fn growth(&self) -> Option<f64> {
        Some(self.now? - self.then?).filter(|growth| *growth > 0.0)
    }
}

/// The answer of `GET /api/v1/peers`: whose requests wait, and who does not take answers. Not known (`null`, or empty)
/// where peers are not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeersAnswer {
    /// The server's name.
    pub server: String,
    /// The last look.
    pub now: Option<DatedPeers>,
    /// The looks of the last ten minutes at which most requests waited, and most bytes were not taken.
    pub worst: Vec<DatedPeers>,
}

/// What was seen at a look, and when it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatedPeers {
    /// When it was made.
    pub time: Option<UnixTime>,
    /// What was seen.
    #[serde(flatten)]
    pub seen: PeersSeen,
}

/// Who has something outstanding at one look at the connections of a server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeersSeen {
    /// All peers.
    pub all: PeerCounts,
    /// The worst of them, the worst first.
    pub worst: Vec<PeerCounts>,
}

/// The connections of one peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "docs/METRICS.md has a list of them")]
pub struct PeerCounts {
    /// An address, a network (`10.0.4.0/24`), `pid N` for a Unix socket, or `all`.
    pub peer: String,
    /// How many addresses of a network have something outstanding.
    pub addresses: u64,
    pub connections: u64,
    pub waiting: u64,
    pub longest_wait_seconds: f64,
    pub unread_bytes: u64,
    /// Connections that have taken nothing for a second.
    pub not_reading: u64,
    /// Answers that the kernel holds because they were not taken.
    pub untaken_bytes: u64,
    pub longest_untaken_seconds: f64,
}

/// The answer of `GET /api/v1/unwatched`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UnwatchedList {
    /// The servers that run on the agent's host and are not watched.
    pub unwatched: Vec<UnwatchedServer>,
}

/// A server that runs on the agent's host and is not watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwatchedServer {
    /// What it would be called in the label `server`.
    pub server: String,
    /// Process id.
    pub pid: u32,
    /// The kind of reason.
    pub reason: UnwatchedReason,
    /// What went wrong and, if something can be done, what to do.
    pub why: String,
}

/// Why a server is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnwatchedReason {
    /// The agent may not look into it.
    Permission,
    /// Its executable cannot be analysed.
    Executable,
    /// The process that analysed it was ended, or failed.
    Planning,
    /// No process or thread could be started, or a file system does not answer. It is tried again.
    Resources,
    /// Its memory cannot be read, or the kernel refuses the probes. It is tried again.
    Attach,
}

impl UnwatchedReason {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Permission, Self::Executable, Self::Planning, Self::Resources, Self::Attach];
}

/// The spelling of the label `reason`.
impl fmt::Display for UnwatchedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The answer of `POST /api/v1/records`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordMade<Id> {
    /// The name of the record.
    pub id: Id,
}

#[cfg(test)]
mod tests {
    use super::{UnwatchedReason, UnwatchedServer};

    #[test]
    fn a_server_is_listed_with_the_reason_and_the_text() -> serde_json::Result<()> {
        for reason in UnwatchedReason::ALL {
            let server =
                UnwatchedServer { server: "6380".to_owned(), pid: 43, reason, why: "Redis <5> is too old".to_owned() };
            let json = format!(r#"{{"server":"6380","pid":43,"reason":"{reason}","why":"Redis <5> is too old"}}"#);
            assert_eq!(serde_json::to_string(&server)?, json);
            assert_eq!(serde_json::from_str::<UnwatchedServer>(&json)?, server);
        }
        Ok(())
    }
}
