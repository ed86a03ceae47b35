//! The record of a run: a file of JSON lines, as the lab's documentation describes them.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{cores::Cores, workspace};
use serde::Serialize;

use crate::{
    counts::{Load, Second},
    outcome::Outcome,
    sample::Sample,
    scenario::Parameters,
};

/// One line of the record; its `type` is the name of the variant in lower case.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Line {
    /// The first line: the run.
    Run(Run),
    /// Something that the lab did.
    Event(Event),
    /// The server's own numbers, some 200 times a second.
    Info(Sample),
    /// The generator's counts, ten times a second.
    Load(Load),
    /// The generator's second.
    Second(Second),
    /// The last line: what the record shows.
    Result(Outcome),
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
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Replies per second of CPU time of the main thread, when it was as fast as it could be below its limit.
    pub capacity: f64,
    /// That CPU time as a share of the time that passed. Well below 1, others used the server's core or
    /// the generator could not keep the server busy.
    pub cpu_share: f64,
    /// Requests due a second.
    pub rate: f64,
    /// The size of a key in the server's memory, in bytes.
    pub key_bytes: u64,
}

/// Something that the lab did.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at: f64,
    /// What the lab did.
    pub what: What,
}

/// What the lab can do in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The load begins.
    LoadBegins,
    /// The load ends.
    LoadEnds,
    /// The server is made slow.
    StallBegins,
    /// The server is let go.
    StallEnds,
}

/// The file.
pub struct Record {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Record {
    /// Creates `target/lab/<scenario>-<seconds since 1970>.jsonl`.
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

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line. The lines of a second reach the file together.
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
