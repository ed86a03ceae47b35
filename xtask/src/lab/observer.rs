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
    second: Option<Second>,
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
            second: None,
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
            Line::Second(second) => self.second = Some(*second),
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
    pub fn outcome(&mut self, at: f64, interrupted: bool) -> Outcome {
        let cycles = self.cycles();
        let swelling = match self.stall {
            (Some(start), Some(end)) => Swelling::of(start, end, &self.samples, &self.loads),
            _ => None,
        };
        let (first, last) = (self.samples.first(), self.samples.last());
        let evicted = last.map_or(0, |sample| sample.evicted_keys)
            - first.map_or(0, |sample| sample.evicted_keys);
        Outcome {
            at,
            interrupted,
            evicted_keys: evicted,
            cycles,
            swelling,
        }
    }

    /// How it stands, in a line.
    pub fn status(&self) -> String {
        let (Some(second), Some(sample)) = (&self.second, self.samples.last()) else {
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
