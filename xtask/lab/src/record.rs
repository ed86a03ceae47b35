//! The lines of the record of a run, as the lab's documentation describes them.

use evictscope_testkit::cores::Cores;
use serde::Serialize;

use crate::{
    counts::Load, cycles::Cycle, expiry::Expiry, parameters::Parameters, premise::Premise,
    sample::Sample,
};

/// One line of the record; its `type` is the name of the variant in lower case.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first line: the run.
    Run(Box<Run>),
    /// The server's own numbers, asked for 200 times a second. The lines of several connections are not in order: sort
    /// them by `at`, then by `commands`.
    Info(Sample),
    /// The generator's counts, ten times a second.
    Load(Load),
    /// The last line: what the record shows, including each cycle.
    Result(Box<Outcome>),
}

/// A run. Times are seconds since 1970, sizes bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// When its load began.
    pub at: f64,
    /// Its name.
    pub scenario: String,
    /// The server's process id.
    pub pid: u32,
    /// The server's TCP port on loopback.
    pub port: u16,
    /// The cores of the server and of the lab, if there are enough for both.
    pub cores: Option<Cores>,
    /// What was measured before the load.
    #[serde(flatten)]
    pub measured: Measured,
    /// The server's configuration and its load.
    pub parameters: Parameters,
}

/// The server before the load, and the rate that follows from it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Replies per second of CPU time of the main thread, at about the rate of the load and below the limit.
    pub capacity: f64,
    /// Requests due a second when the load began.
    pub rate: f64,
    /// The size of a key in the server's memory, in bytes.
    pub key_bytes: u64,
    /// The limit under load, in bytes.
    pub maxmemory: u64,
}

/// What the record shows, from the beginning of the load to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// When the load ended, in seconds since 1970.
    pub at: f64,
    /// Whether the run was ended by the user.
    pub interrupted: bool,
    /// Seconds of load.
    pub seconds: f64,
    /// The last counts of the load.
    pub load: Load,
    /// Replies under load.
    pub answered: u64,
    /// The highest backlog.
    pub backlog_peak: u64,
    /// The highest `mem_clients_normal`, in bytes.
    pub client_buffers_peak: u64,
    /// Requests due a second at the end.
    pub rate: f64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// How long the longest evicting call took according to the server, in seconds; `None` if all were brief.
    pub longest_call: Option<f64>,
    /// Every burst, complete or not.
    pub cycles: Vec<Cycle>,
    /// What was missing under load.
    pub premise: Premise,
    /// For `expire`: what expired, and what expired keys held at the end.
    pub expiry: Option<Expiry>,
}
