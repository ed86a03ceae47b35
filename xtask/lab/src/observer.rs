//! The record as it grows, and what it shows so far.

use std::path::Path;

use anyhow::Result;
use evictscope_testkit::{
    json_lines::JsonLines,
    text::{bytes, count, percent},
};

use crate::{
    counts::{Load, Second},
    cycles::{self, Cycle},
    expiry::Expiry,
    premise::{Premise, Times},
    record::{Line, Outcome, Run, What},
    sample::Sample,
};

/// The record and what it is judged by.
pub struct Observer {
    record: JsonLines,
    begin: f64,
    has_replica: bool,
    samples: Vec<Sample>,
    loads: Vec<Load>,
    times: Vec<Times>,
    seconds: Vec<Second>,
}

impl Observer {
    /// Begins the record `target/lab/<scenario>-<seconds since 1970>.jsonl` of a run.
    pub fn new(run: &Run) -> Result<Self> {
        let name = format!("lab/{}-{:.0}.jsonl", run.scenario, run.at);
        let mut observer = Self {
            record: JsonLines::create(name)?,
            begin: f64::INFINITY,
            has_replica: false,
            samples: Vec::new(),
            loads: Vec::new(),
            times: Vec::new(),
            seconds: Vec::new(),
        };
        observer.take(Line::Run(Box::new(run.clone())))?;
        Ok(observer)
    }

    /// Returns where the record is.
    pub fn path(&self) -> &Path {
        self.record.path()
    }

    /// Writes a line into the record, and takes it in.
    pub fn take(&mut self, line: Line) -> Result<()> {
        self.record.add(&line)?;
        match line {
            Line::Event { at, what } => match what {
                What::LoadBegins => self.begin = at,
                What::ReplicaComes => self.has_replica = true,
            },
            Line::Info(sample) => self.samples.push(sample),
            Line::Times(times) => self.times.push(times),
            Line::Load(load) => self.loads.push(load),
            Line::Second(second) => self.seconds.push(second),
            Line::Run(_) | Line::Result(_) => {}
        }
        Ok(())
    }

    /// Returns whether nothing but the load has happened: no key was evicted, and the lab did nothing else.
    pub fn is_calm(&self) -> bool {
        let evicted = |sample: Option<&Sample>| sample.map(|sample| sample.evicted_keys);
        evicted(self.samples.first()) == evicted(self.samples.last()) && !self.has_replica
    }

    /// Returns what was missing until a time, under all of the load.
    pub fn premise(&self, until: f64) -> Premise {
        Premise::between(self.begin.min(until), until, &self.times, &self.loads)
    }

    /// Returns the last counts of the load and times of the main thread.
    pub fn last_counts(&self) -> Option<(&Load, &Times)> {
        self.loads.last().zip(self.times.last())
    }

    /// Returns the cycles so far.
    pub fn cycles(&mut self) -> Vec<Cycle> {
        // They come from several threads. The count of commands orders two of one instant.
        self.samples.sort_by(|left, right| {
            left.at
                .total_cmp(&right.at)
                .then(left.commands.cmp(&right.commands))
        });
        cycles::find(self.begin, &self.samples, &self.loads, &self.times)
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
        let (samples, loads, seconds) = (&self.samples, &self.loads, &self.seconds);
        let evicted = |sample: Option<&Sample>| sample.map_or(0, |sample| sample.evicted_keys);
        let total = |count: fn(&Load) -> u64| {
            loads.last().map_or(0, count) - loads.first().map_or(0, count)
        };
        let greatest = |value: fn(&Second) -> f64| seconds.iter().map(value).fold(0.0, f64::max);
        let backlogs = loads.iter().map(|load| load.backlog_peak);
        let rest = cycles.last().map_or(self.begin, |cycle| cycle.reclaim_end);
        let buffers = samples.iter().map(|sample| sample.client_buffers);
        let outcome = Outcome {
            at,
            interrupted,
            seconds: at - self.begin,
            answered: total(|load| load.totals.answered),
            errors: total(|load| load.totals.errors),
            lost: total(|load| load.totals.lost),
            hung_up: total(|load| load.totals.hung_up),
            backlog_peak: backlogs.max().unwrap_or_default(),
            latency_p99: median(seconds.iter().map(|second| second.latency_p99)),
            latency_max: greatest(|second| second.latency_max),
            client_buffers_peak: buffers.max().unwrap_or_default(),
            evicted_keys: evicted(samples.last()) - evicted(samples.first()),
            rate,
            has_replica: self.has_replica,
            longest_call,
            rest: Premise::between(rest.min(at), at, &self.times, loads),
            cycles,
            expiry,
        };
        self.take(Line::Result(Box::new(outcome.clone())))?;
        Ok(outcome)
    }

    /// Returns the state of the run in a line.
    pub fn status(&self) -> String {
        let (Some(second), Some(sample)) = (self.seconds.last(), self.samples.last()) else {
            return "no second yet".to_owned();
        };
        format!(
            "{} of {}/s answered, backlog {}, p99 {:.0} ms, used {} of {}, client buffers {}, evicted {}, \
             expired {}, {} of those looked at last",
            count(second.answered_per_second),
            count(second.due_per_second),
            count(second.backlog as f64),
            second.latency_p99 * 1000.0,
            bytes(sample.used_memory),
            bytes(sample.maxmemory),
            bytes(sample.client_buffers),
            count(sample.evicted_keys as f64),
            count(sample.expired_keys as f64),
            percent(sample.stale_ratio),
        )
    }
}

/// Returns the value in the middle, or 0 where there are none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
