//! Takes each line into the record, and knows what the record shows so far.

use std::path::Path;

use anyhow::Result;
use indicatif::{BinaryBytes, HumanCount};

use super::{
    cycles::{self, Cycle},
    info::Sample,
    record::{Line, Load, Outcome, Record, Second},
    stall::Swelling,
};

/// The name of the event with which the load begins.
pub const LOAD_BEGINS: &str = "load_begins";
/// With which it ends.
pub const LOAD_ENDS: &str = "load_ends";
/// With which the server becomes slow.
pub const STALL_BEGINS: &str = "stall_begins";
/// With which it no longer is.
pub const STALL_ENDS: &str = "stall_ends";

/// The record and what it is judged by.
pub struct Observer {
    record: Record,
    begin: f64,
    stall: (Option<f64>, Option<f64>),
    samples: Vec<Sample>,
    loads: Vec<Load>,
    seconds: Vec<Second>,
}

impl Observer {
    /// Nothing seen.
    pub fn new(record: Record) -> Self {
        Self {
            record,
            begin: f64::INFINITY,
            stall: (None, None),
            samples: Vec::new(),
            loads: Vec::new(),
            seconds: Vec::new(),
        }
    }

    /// Where the record is.
    pub fn path(&self) -> &Path {
        self.record.path()
    }

    /// Takes one line.
    pub fn take(&mut self, line: &Line) -> Result<()> {
        self.record.write(line)?;
        match line {
            Line::Event(event) => match event.what {
                LOAD_BEGINS => self.begin = event.at,
                STALL_BEGINS => self.stall.0 = Some(event.at),
                STALL_ENDS => self.stall.1 = Some(event.at),
                _ => {}
            },
            Line::Info(sample) => self.samples.push(*sample),
            Line::Load(load) => self.loads.push(*load),
            Line::Second(second) => self.seconds.push(*second),
            Line::Run(_) | Line::Result(_) => {}
        }
        Ok(())
    }

    /// The cycles so far.
    pub fn cycles(&mut self) -> Vec<Cycle> {
        // They come from several threads. The count of commands tells two of one instant apart.
        self.samples.sort_by(|left, right| {
            left.at
                .total_cmp(&right.at)
                .then(left.commands.cmp(&right.commands))
        });
        cycles::find(self.begin, &self.samples, &self.loads)
    }

    /// What the record shows, once the load has ended.
    pub fn outcome(&mut self, at: f64, interrupted: bool, server_wait_max: f64) -> Outcome {
        let cycles = self.cycles();
        let swelling = match self.stall {
            (Some(start), Some(end)) => Swelling::of(start, end, &self.samples, &self.loads),
            _ => None,
        };
        let (samples, loads, seconds) = (&self.samples, &self.loads, &self.seconds);
        let evicted = |sample: Option<&Sample>| sample.map_or(0, |sample| sample.evicted_keys);
        let total = |count: fn(&Load) -> u64| {
            loads.last().map_or(0, count) - loads.first().map_or(0, count)
        };
        let greatest = |value: fn(&Second) -> f64| seconds.iter().map(value).fold(0.0, f64::max);
        let backlogs = loads.iter().map(|load| load.backlog_peak);
        let buffers = samples.iter().map(|sample| sample.client_buffers);
        Outcome {
            at,
            interrupted,
            seconds: at - self.begin,
            answered: total(|load| load.answered),
            errors: total(|load| load.errors),
            backlog_peak: backlogs.max().unwrap_or_default(),
            latency_max: greatest(|second| second.latency_max),
            client_buffers_peak: buffers.max().unwrap_or_default(),
            evicted_keys: evicted(samples.last()) - evicted(samples.first()),
            generator_cpu_max: greatest(|second| second.generator_cpu),
            server_wait_max,
            cycles,
            swelling,
        }
    }

    /// How it stands, in a line.
    pub fn status(&self) -> String {
        let (Some(second), Some(sample)) = (self.seconds.last(), self.samples.last()) else {
            return "no second yet".to_owned();
        };
        format!(
            "{} of {}/s answered, backlog {}, p99 {:.0} ms, used {} of {}, client buffers {}, evicted {}",
            HumanCount(second.answered_per_second.round() as u64),
            HumanCount(second.due_per_second.round() as u64),
            HumanCount(second.backlog),
            second.latency_p99 * 1000.0,
            BinaryBytes(sample.used_memory),
            BinaryBytes(sample.maxmemory),
            BinaryBytes(sample.client_buffers),
            HumanCount(sample.evicted_keys),
        )
    }
}
