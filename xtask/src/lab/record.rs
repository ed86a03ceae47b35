//! The record of a run: a file of JSON lines, as the lab's documentation describes them.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::{
    cores::Cores, cycles::Cycle, info::Sample, own_core::DISTURBED, scenario::Parameters,
    stall::Swelling,
};
use crate::workspace;

/// One line of the record; its `type` is the name of the variant in lower case.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first line: what is run.
    Run(Run),
    /// Something that the lab did.
    Event(Event),
    /// The server's word, about ten times a second on each of the recorder's connections.
    Info(Sample),
    /// The generator's counts, ten times a second.
    Load(Load),
    /// The generator's second.
    Second(Second),
    /// The last line: what the record shows.
    Result(Outcome),
}

/// What is run. Times are seconds since 1970; sizes are bytes.
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
    /// Which cores the server and the lab run on. None: anywhere.
    pub cores: Option<Cores>,
    /// Replies for each second of CPU time that the server's main thread had, as fast as it could,
    /// below its limit.
    pub capacity: f64,
    /// That CPU time as a share of the time that passed: well below 1, and others were on its core,
    /// or the generator could not keep it busy.
    pub cpu_share: f64,
    /// Requests due a second.
    pub rate: f64,
    /// What one key takes of the server's memory, in bytes.
    pub key_bytes: u64,
    /// The rest.
    pub parameters: Parameters,
}

/// Something that the lab did.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at: f64,
    /// What: `load_begins`, `load_ends`, `stall_begins`, `stall_ends`.
    pub what: &'static str,
}

/// The generator's counts since it connected.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Load {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Requests that fell due.
    pub due: u64,
    /// Requests handed to a connection's socket.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
    /// Requests due and not answered.
    pub backlog: u64,
    /// The highest backlog since the line before.
    pub backlog_peak: u64,
}

/// A second of the generator. Latencies are in seconds, from when a request was due to its reply.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Second {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// Requests that fell due.
    pub due_per_second: f64,
    /// Replies.
    pub answered_per_second: f64,
    /// Replies that were errors.
    pub errors_per_second: f64,
    /// Bytes of replies.
    pub bytes_per_second: f64,
    /// Of the replies of this second.
    pub latency_p50: f64,
    /// Of the replies of this second.
    pub latency_p90: f64,
    /// Of the replies of this second.
    pub latency_p99: f64,
    /// Of the replies of this second.
    pub latency_max: f64,
    /// Requests due and not answered, at the end.
    pub backlog: u64,
    /// The highest backlog within.
    pub backlog_peak: u64,
    /// Requests due and not sent, at the end.
    pub waiting: u64,
    /// CPU time of the generator's thread, in cores: near 1, the load is not what it claims to be.
    pub generator_cpu: f64,
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
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// The highest backlog.
    pub backlog_peak: u64,
    /// The longest latency, in seconds.
    pub latency_max: f64,
    /// The highest `mem_clients_normal`, in bytes.
    pub client_buffers_peak: u64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// The greatest share of a second that the generator's thread was busy.
    pub generator_cpu_max: f64,
    /// The greatest share of a second that the server's main thread waited for its core.
    pub server_wait_max: f64,
    /// Every burst, complete or not.
    pub cycles: Vec<Cycle>,
    /// For `stall`: how client buffers swelled.
    pub swelling: Option<Swelling>,
}

impl Outcome {
    /// Whether something else ran on the server's core, so that the run is no evidence.
    pub fn was_disturbed(&self) -> bool {
        self.server_wait_max > DISTURBED
    }
}

/// The file.
pub struct Record {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Record {
    /// Makes `target/lab/<scenario>-<seconds since 1970>.jsonl`.
    pub fn create(scenario: &str, at: f64) -> Result<Self> {
        let directory = workspace::target_directory()?.join("lab");
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(format!("{scenario}-{at:.0}.jsonl"));
        let file = File::create_new(&path)
            .with_context(|| format!("cannot make the record {}", path.display()))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line. Those of a whole second are written together, for whoever follows the file.
    pub fn write(&mut self, line: &Line) -> Result<()> {
        let write = |file: &mut BufWriter<File>| -> Result<()> {
            serde_json::to_writer(&mut *file, line)?;
            file.write_all(b"\n")?;
            if matches!(line, Line::Second(_) | Line::Result(_)) {
                file.flush()?;
            }
            Ok(())
        };
        write(&mut self.file).with_context(|| format!("cannot write to {}", self.path.display()))
    }
}
