//! The record as it grows, and what it shows so far.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{
    cores::Cores,
    text::{bytes, count, percent},
    workspace,
};
use serde::Serialize;

use crate::{
    client::Sample,
    counts::Load,
    cycles::{self, Cycle},
    expiry::Expiry,
    scenario::Parameters,
};

/// [`Load`]s in a second.
const SECOND: usize = 10;

/// The record and what it shows.
pub struct Observer {
    record: File,
    path: PathBuf,
    run: Run,
    samples: Vec<Sample>,
    loads: Vec<Load>,
}

impl Observer {
    /// Begins the record `target/lab/<scenario>-<seconds since 1970>.jsonl` of a run.
    pub fn new(run: Run) -> Result<Self> {
        let folder = workspace::target_directory()?.join("lab");
        fs::create_dir_all(&folder).context("cannot make target/lab")?;
        let path = folder.join(format!("{}-{:.0}.jsonl", run.scenario, run.at));
        let mut observer = Self {
            record: File::create(&path).context("cannot begin the record")?,
            path,
            run: run.clone(),
            samples: Vec::new(),
            loads: Vec::new(),
        };
        observer.take(Line::Run(Box::new(run)))?;
        Ok(observer)
    }

    /// Returns where the record is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a line into the record, and takes it in.
    pub fn take(&mut self, line: Line) -> Result<()> {
        writeln!(self.record, "{}", serde_json::to_string(&line)?)?;
        match line {
            Line::Info(sample) => self.samples.push(sample),
            Line::Load(load) => self.loads.push(load),
            Line::Run(_) | Line::Result(_) => {}
        }
        Ok(())
    }

    /// Returns whether nothing but the load has happened: no key was evicted, and no visitor has come.
    pub fn is_calm(&self) -> bool {
        let evicted = |sample: Option<&Sample>| sample.map(|sample| sample.evicted_keys);
        let visitor = self.run.parameters.visitor.as_ref();
        let comes = visitor.map_or(f64::INFINITY, |visitor| self.run.at + visitor.after);
        evicted(self.samples.first()) == evicted(self.samples.last())
            && self.last_load().is_none_or(|load| load.at < comes)
    }

    /// Returns the last counts of the load.
    pub fn last_load(&self) -> Option<&Load> {
        self.loads.last()
    }

    /// Says what was missing under load, if that was too much.
    pub fn disturbance(&self) -> Option<String> {
        self.last_load()?.disturbance_since(self.loads.first()?)
    }

    /// Returns the cycles so far.
    pub fn cycles(&mut self) -> Vec<Cycle> {
        // They come from several threads. The count of commands orders two from the same instant.
        self.samples.sort_by(|left, right| {
            left.at
                .total_cmp(&right.at)
                .then(left.commands.cmp(&right.commands))
        });
        cycles::find(self.run.at, &self.samples, &self.loads)
    }

    /// Ends the record of a load that ended `at`, and returns what it shows.
    pub fn end(
        mut self,
        at: f64,
        interrupted: bool,
        rate: f64,
        longest_call: Option<f64>,
        expiry: Option<Expiry>,
    ) -> Result<Outcome> {
        let cycles = self.cycles();
        let (samples, loads) = (&self.samples, &self.loads);
        let (first, last) =
            (samples.first().zip(samples.last())).context("INFO was not answered")?;
        let (begin, load) = (loads.first().zip(loads.last())).context("there was no load")?;
        let backlogs = loads.iter().map(|load| load.backlog_peak);
        let buffers = samples.iter().map(|sample| sample.client_buffers);
        let outcome = Outcome {
            at,
            interrupted,
            seconds: at - self.run.at,
            load: *load,
            answered: load.totals.answered - begin.totals.answered,
            backlog_peak: backlogs.max().unwrap_or_default(),
            client_buffers_peak: buffers.max().unwrap_or_default(),
            rate,
            evicted_keys: last.evicted_keys - first.evicted_keys,
            longest_call,
            cycles,
            disturbance: self.disturbance(),
            expiry,
        };
        self.take(Line::Result(Box::new(outcome.clone())))?;
        Ok(outcome)
    }

    /// Returns the state of the run in a line.
    pub fn status(&self) -> String {
        let before = self.loads.len().checked_sub(1 + SECOND);
        let before = before.and_then(|index| self.loads.get(index));
        let (Some(before), Some(load), Some(sample)) =
            (before, self.loads.last(), self.samples.last())
        else {
            return "less than a second so far".to_owned();
        };
        let seconds = load.at - before.at;
        let rate = |now: u64, before: u64| count((now - before) as f64 / seconds);
        format!(
            "{} of {}/s answered, backlog {}, p99 {:.0} ms, used {} of {}, client buffers {}, evicted {}, \
             expired {}, {} of those looked at last",
            rate(load.totals.answered, before.totals.answered),
            rate(load.totals.due, before.totals.due),
            count(load.backlog as f64),
            load.latency_p99 * 1000.0,
            bytes(sample.used_memory),
            bytes(sample.maxmemory),
            bytes(sample.client_buffers),
            count(sample.evicted_keys as f64),
            count(sample.expired_keys as f64),
            percent(sample.stale_ratio),
        )
    }
}

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
    /// What was missing under load, if that was too much.
    pub disturbance: Option<String>,
    /// For `expire`: what expired, and what expired keys held at the end.
    pub expiry: Option<Expiry>,
}
