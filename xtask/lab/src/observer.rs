//! The record as it grows, and what it shows so far.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{
    text::{bytes, count, percent},
    workspace,
};

use crate::{
    counts::Load,
    cycles::{self, Cycle},
    expiry::Expiry,
    premise::Premise,
    record::{Line, Outcome, Run},
    sample::Sample,
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

    /// Returns what was missing during the whole load.
    pub fn premise(&self) -> Premise {
        Premise::between(f64::MIN, f64::MAX, &self.loads)
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
            premise: self.premise(),
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
