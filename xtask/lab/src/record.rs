//! The lines of the record of a run, as the lab's documentation describes them.

use std::sync::mpsc::Sender;

use anyhow::{Context as _, Result};
use evictscope_testkit::{clock::unix_time, cores::Cores};
use serde::Serialize;

use crate::{
    counts::{Load, Second},
    cycles::Cycle,
    expiry::Expiry,
    parameters::Parameters,
    premise::{Premise, Times},
    sample::Sample,
};

/// One line of the record; its `type` is the name of the variant in lower case.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first line: the run.
    Run(Box<Run>),
    /// Something that the lab did.
    Event {
        /// When, in seconds since 1970.
        at: f64,
        /// What the lab did.
        what: What,
    },
    /// The server's own numbers, asked for 200 times a second. The lines of several connections are not in order: sort
    /// them by `at`, then by `commands`.
    Info(Sample),
    /// The main thread's times, ten times a second.
    Times(Times),
    /// The generator's counts, ten times a second.
    Load(Load),
    /// The generator's second.
    Second(Second),
    /// The last line: what the record shows, each cycle among it.
    Result(Box<Outcome>),
}

/// A run. Times are seconds since 1970, sizes bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// When it began.
    pub at: f64,
    /// Its name.
    pub scenario: String,
    /// The server's process id.
    pub pid: u32,
    /// The server's TCP port on loopback.
    pub port: u16,
    /// The cores of the server and of the lab, where there are enough for both.
    pub cores: Option<Cores>,
    /// What was measured before the load.
    #[serde(flatten)]
    pub measured: Measured,
    /// The server's configuration and its load.
    pub parameters: Parameters,
}

/// The server before the load, and the rate that follows from it.
#[derive(Clone, Copy, Debug, Default, Serialize)]
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

/// What the lab can do in a run.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The load begins.
    LoadBegins,
    /// A replica asks for all data.
    ReplicaComes,
}

/// What the record shows, from the beginning of the load to its end.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Outcome {
    /// When the load ended, in seconds since 1970.
    pub at: f64,
    /// Whether the run was ended by the user.
    pub interrupted: bool,
    /// Seconds of load.
    pub seconds: f64,
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Requests whose connection the server closed before it replied.
    pub lost: u64,
    /// Connections that the server closed.
    pub hung_up: u64,
    /// The highest backlog.
    pub backlog_peak: u64,
    /// The 99th percentile of the latency, in seconds: the median of those of all seconds.
    pub latency_p99: f64,
    /// The longest latency, in seconds.
    pub latency_max: f64,
    /// The highest `mem_clients_normal`, in bytes.
    pub client_buffers_peak: u64,
    /// Requests due a second in the end.
    pub rate: f64,
    /// Whether a replica came: the server counts its buffers among the clients', and `INFO` does not.
    pub has_replica: bool,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// How long the longest evicting call took, by the server, in seconds; `None` where all were brief.
    pub longest_call: Option<f64>,
    /// Every burst, complete or not.
    pub cycles: Vec<Cycle>,
    /// What was missing after the last of them.
    pub rest: Premise,
    /// For `expire`: what expired, and what expired keys held in the end.
    pub expiry: Option<Expiry>,
}

impl Outcome {
    /// Returns whether the premise of the lab was gone in some phase.
    pub fn was_disturbed(&self) -> bool {
        !self.disturbances().is_empty()
    }

    /// Says in which phases the premise of the lab was gone, and by how much.
    pub fn disturbances(&self) -> Vec<String> {
        let mut phases: Vec<(String, Premise)> = Vec::new();
        for (number, cycle) in (1..).zip(&self.cycles) {
            for (phase, premise) in cycle.phases() {
                phases.push((format!("{phase} of burst {number}"), premise));
            }
        }
        phases.push(("not_saturated in the end".to_owned(), self.rest));
        let said = |(phase, premise): &(String, Premise)| {
            Some(format!("{phase}: {}", premise.disturbance()?))
        };
        phases.iter().filter_map(said).collect()
    }
}

/// Sends an event of this moment.
pub fn tell(lines: &Sender<Line>, what: What) -> Result<()> {
    let at = unix_time()?;
    let sent = lines.send(Line::Event { at, what });
    sent.ok().context("the recorder has ended")
}
