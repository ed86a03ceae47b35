//! What one record holds, and how a server ended, as far as the kernel says.

use std::fmt;

use evictscope_model::answers::PeersSeen;
use evictscope_telemetry::{Burst, CommandSpan, LatencySecond, Moment, OutputLimits, SlowCall};
use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use serde::{Deserialize, Serialize};

use crate::profile::Profile;
use crate::text::timestamp;

/// One burst, one stall, the end of a server, or what was asked for: from a minute before it to half a minute after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of the format: [`Record::FORMAT`].
    pub format: u32,
    /// Its name, which is that of its file without the ending.
    pub id: RecordId,
    /// The version of the agent that wrote it.
    pub agent: String,
    /// Why it was made.
    pub occasion: Occasion,
    /// The server.
    pub server: RecordedServer,
    /// When what it is about began, microseconds since 1970.
    pub began_us: u64,
    /// When that ended, including the reclaim, microseconds since 1970.
    pub ended_us: u64,
    /// The burst; `None` for a stall in a burst that goes on, and for a record that was asked for.
    pub burst: Option<Burst>,
    /// How the server ended, if the record is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// The configuration as read at the end.
    pub configuration: Configuration,
    /// The server from 60 s before the beginning to 30 s after the end: at each reading, 10 times a second, and 50
    /// times while it evicted.
    pub moments: Vec<Moment>,
    /// The 50 slowest evicting calls, the slowest first.
    pub slowest: Vec<SlowCall>,
    /// The durations of evicting calls, second by second; seconds without any are left out.
    pub latencies: Vec<LatencySecond>,
    /// What commands took, by the server's own counters: second by second, and in parts where stalls began and ended.
    /// Empty if the counters were not found, and in records before 0.2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandSpan>,
    /// Whose requests waited, and who did not take answers, when that was worst.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<RecordedPeers>,
    /// Where the main thread spent its time, or why that is not known.
    pub profile: Result<Profile, NoProfile>,
    /// What was not found in this server, and why.
    pub not_found: Vec<String>,
    /// The highest cost of the probes meanwhile, as a share of the main thread.
    pub overhead_ratio: Option<f64>,
    /// The most that they were allowed to cost.
    pub overhead_budget_ratio: f64,
}

impl Record {
    /// The version of the format that this agent writes.
    pub const FORMAT: u32 = 1;

    /// Returns whether a page of it can be made in a bounded time: somebody may have made it up.
    pub fn is_drawable(&self) -> bool {
        self.profile.as_ref().map_or(true, Profile::is_drawable)
    }
}

/// The name of a record: letters, digits, `-`, `_` and `.` only, so that it is safe in a path and in a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RecordId(String);

/// The time that names begin with: in UTC, to the millisecond. It sorts chronologically.
const TIME: &str = "%Y%m%dT%H%M%S.%3fZ";
/// The longest name, so that a file can have it.
const LONGEST_ID: usize = 120;
/// How many characters of a server's label a name has. With the time and the process id it is shorter than
/// [`LONGEST_ID`].
const LONGEST_LABEL: usize = 80;

fn is_safe(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

/// Returns a server's label as it is in names.
fn safe(label: &str) -> String {
    label.chars().take(LONGEST_LABEL).map(|c| if is_safe(c) { c } else { '_' }).collect()
}

/// The error for a text that is not a record's name.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the name of a record; `evictscope report --list` lists them")]
pub struct NotAnId(String);

impl TryFrom<String> for RecordId {
    type Error = NotAnId;

    fn try_from(text: String) -> Result<Self, NotAnId> {
        let is_id = !text.is_empty() && text.len() <= LONGEST_ID && !text.starts_with('.') && text.chars().all(is_safe);
        if is_id { Ok(Self(text)) } else { Err(NotAnId(text)) }
    }
}

impl From<RecordId> for String {
    fn from(id: RecordId) -> Self {
        id.0
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl RecordId {
    /// Returns the name of what began at this time, microseconds since 1970, in the server with this label and process
    /// id.
    pub fn new(began_us: u64, label: &str, pid: u32) -> Self {
        let time = timestamp(began_us).unwrap_or(Timestamp::MAX).strftime(TIME);
        Self(format!("{time}-{}-{pid}", safe(label)))
    }

    /// Returns whether the name begins with a time, like those that this agent gives.
    pub(super) fn has_time(&self) -> bool {
        let (time, _) = self.0.split_once('-').unwrap_or_default();
        time.len() == 20 && BrokenDownTime::parse(TIME, time).is_ok()
    }

    /// Returns the name as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Why a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Occasion {
    /// A burst that is not plain has ended.
    Burst,
    /// Clients were stalled for a second or longer.
    Stall,
    /// One evicting call took a tenth of a second of CPU time or longer.
    Call,
    /// Commands were refused, because no key could be evicted.
    Refused,
    /// Client buffers took much of `maxmemory`.
    Buffers,
    /// A tenth of all keys, or more, were lost in a minute: evicted, expired by a promotion, or removed at once.
    Lost,
    /// The server ended.
    Ended,
    /// Somebody asked for it.
    Asked,
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Burst => "burst",
            Self::Stall => "stall",
            Self::Call => "slow eviction call",
            Self::Refused => "refused commands",
            Self::Buffers => "swollen client buffers",
            Self::Lost => "lost keys",
            Self::Ended => "end of the server",
            Self::Asked => "record that was asked for",
        })
    }
}

/// Which server a record is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "their names say what they are")]
pub struct RecordedServer {
    /// Its name in metrics.
    pub label: String,
    pub pid: u32,
    /// The name that it was started by.
    pub command: String,
    /// As the process sees it.
    pub exe: String,
    /// `redis`, `valkey` and so on.
    pub product: Option<String>,
    pub version: Option<String>,
    pub build_id: Option<String>,
}

/// Who had something outstanding at one look.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordedPeers {
    /// When it was, microseconds since 1970.
    pub unix_us: u64,
    /// What was seen.
    #[serde(flatten)]
    pub seen: PeersSeen,
}

/// The configuration of a server, as far as it could be read. What its version lacks is `None`, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "their names are those of the settings")]
pub struct Configuration {
    /// Bytes.
    pub maxmemory: Option<u64>,
    pub maxmemory_policy: Option<String>,
    pub hz: Option<u32>,
    pub active_expire_effort: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazyfree_lazy_eviction: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazyfree_lazy_user_del: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazyfree_lazy_user_flush: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxmemory_samples: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxmemory_eviction_tenacity: Option<u32>,
    /// `maxmemory-clients`: 0 if there is no limit, bytes, or, below 0, a share of `maxmemory` in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxmemory_clients: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_output_buffer_limit: Option<OutputLimits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracking_table_max_keys: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub databases: Option<u32>,
    /// `repl-backlog-size`, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repl_backlog_size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<u32>,
}

/// Why a record has no profile, in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoProfile(pub String);

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// It ended itself.
    Exit {
        /// Its exit status: 0 for `SHUTDOWN` and SIGTERM.
        status: u8,
    },
    /// A signal ended it.
    Signal {
        /// The signal's number.
        number: u8,
    },
    /// The OOM killer ended it.
    Oom {
        /// Whether its control group, or one above it, was at its memory limit; if not, the host had no memory left.
        of_group: Option<bool>,
    },
    /// The kernel does not say: before Linux 6.15 it does only until the process's parent has been told.
    Unknown,
}

/// The signals that end a server, by number, with what sends them.
const SIGNALS: [(u8, &str, &str); 11] = [
    (1, "SIGHUP", SENT),
    (2, "SIGINT", SENT),
    (3, "SIGQUIT", SENT),
    (4, "SIGILL", CRASH),
    (5, "SIGTRAP", "a debugger or another tool left a breakpoint in it"),
    (6, "SIGABRT", CRASH),
    (7, "SIGBUS", CRASH),
    (8, "SIGFPE", CRASH),
    (9, "SIGKILL", SENT),
    (11, "SIGSEGV", CRASH),
    (15, "SIGTERM", SENT),
];
const SENT: &str = "another process sent that signal, and the kernel does not say which";
const CRASH: &str =
    "that is how a crash ends, unless another process sent that signal: the server's own log has the report of a crash";

impl Ending {
    /// All values of the label `how`.
    pub const HOW: [&str; 4] = ["exit", "signal", "oom", "unknown"];

    /// Returns the value of the label `how`, as an index into [`Self::HOW`].
    pub fn label(self) -> usize {
        match self {
            Self::Exit { .. } => 0,
            Self::Signal { .. } => 1,
            Self::Oom { .. } => 2,
            Self::Unknown => 3,
        }
    }

    /// Returns the value of the label `how`.
    pub fn how(self) -> &'static str {
        Self::HOW[self.label()]
    }

    /// Returns its exit status or the name of the signal.
    pub fn status(self) -> String {
        match self {
            Self::Exit { status } => status.to_string(),
            Self::Signal { number } => match known(number) {
                Some((_, name, _)) => (*name).to_owned(),
                None => format!("signal {number}"),
            },
            Self::Oom { .. } => "SIGKILL".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }

    /// Returns whether nothing is wrong with it.
    pub fn is_clean(self) -> bool {
        self == Self::Exit { status: 0 }
    }

    /// Says why, as far as the way in which it ended tells: a sentence without its full stop.
    pub fn why(self) -> &'static str {
        match self {
            Self::Exit { status: 0 } => "it was told to end, or to start again",
            Self::Exit { .. } => "it gave up: its own log says why",
            Self::Signal { number } => known(number).map_or(SENT, |(_, _, why)| why),
            Self::Oom { of_group: Some(true) } => "its control group, or one above it, was at its memory limit",
            Self::Oom { of_group: Some(false) } => "the host had no memory left",
            Self::Oom { of_group: None } => {
                "the host, or its control group, had no memory left: the kernel's log says which"
            }
            Self::Unknown => {
                "the kernel told only its parent, before Linux 6.15: the log of what started it may say more"
            }
        }
    }
}

fn known(number: u8) -> Option<&'static (u8, &'static str, &'static str)> {
    SIGNALS.iter().find(|signal| signal.0 == number)
}

/// What it did, after the name of the server.
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit { status } => write!(f, "ended itself, with status {status}"),
            Self::Signal { .. } => write!(f, "was ended by {}", self.status()),
            Self::Oom { of_group } => f.write_str(match of_group {
                Some(true) => "was killed by the OOM killer of its control group",
                Some(false) => "was killed by the OOM killer of the host",
                None => "was killed by the OOM killer",
            }),
            Self::Unknown => f.write_str("ended; how is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Record;
    use crate::fixture::{FORMAT_1, burst_record};

    #[test]
    fn a_record_of_format_1_is_read_and_written_again() -> anyhow::Result<()> {
        let record: Record = serde_json::from_str(FORMAT_1)?;
        let written: serde_json::Value = serde_json::from_str(FORMAT_1)?;
        assert_eq!(serde_json::to_value(&record)?, written);
        // Others are made from it.
        assert_eq!(record.moments, burst_record().moments[..2]);
        Ok(())
    }
}
