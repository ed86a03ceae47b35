//! What is seen of a run, and what that shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use evictscope_testkit::clock::unix_time;
use evictscope_testkit::text::{bytes, count, percent};
use rustix::process::setpriority_process;

use crate::client::{Client, Sample};
use crate::counts::Load;
use crate::cycles::{self, Cycle};
use crate::expiry::Expiry;
use crate::scenario::Parameters;

/// What was seen of a run so far.
pub struct Observer {
    /// When the load began, and when a visitor comes.
    begun: f64,
    comes: f64,
    samples: Vec<Sample>,
    loads: Vec<Load>,
}

impl Observer {
    pub fn new(parameters: &Parameters) -> Result<Self> {
        let begun = unix_time()?;
        let visitor = parameters.visitor.as_ref();
        Ok(Self {
            begun,
            comes: visitor.map_or(f64::INFINITY, |visitor| begun + visitor.after),
            samples: Vec::new(),
            loads: Vec::new(),
        })
    }

    pub fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Info(sample) => self.samples.push(sample),
            Seen::Load(load) => self.loads.push(load),
        }
    }

    /// Returns whether nothing but the load has happened: no key was evicted, and no visitor has come.
    pub fn is_calm(&self) -> bool {
        self.evicted_keys() == 0 && self.last_load().is_none_or(|load| load.at < self.comes)
    }

    pub fn last_load(&self) -> Option<&Load> {
        self.loads.last()
    }

    pub fn disturbance(&self) -> Option<String> {
        self.last_load()?.disturbance_since(self.loads.first()?)
    }

    pub fn cycles(&mut self) -> Vec<Cycle> {
        // They come from several threads. The count of commands orders two from the same instant.
        let order = |left: &Sample, right: &Sample| left.at.total_cmp(&right.at);
        (self.samples).sort_by(|left, right| order(left, right).then(left.commands.cmp(&right.commands)));
        cycles::find(&self.samples)
    }

    fn evicted_keys(&self) -> u64 {
        let ends = self.samples.first().zip(self.samples.last());
        ends.map_or(0, |(first, last)| last.evicted_keys.saturating_sub(first.evicted_keys))
    }

    /// Ends with a load that ended `at`, and returns what was seen.
    pub fn end(
        mut self,
        at: f64,
        interrupted: bool,
        rate: f64,
        longest_call: Option<f64>,
        expiry: Option<Expiry>,
    ) -> Result<Outcome> {
        let cycles = self.cycles();
        let (begin, load) = (self.loads.first().zip(self.loads.last())).context("there was no load")?;
        Ok(Outcome {
            at,
            interrupted,
            seconds: at - self.begun,
            load: *load,
            answered: load.totals.answered - begin.totals.answered,
            rate,
            evicted_keys: self.evicted_keys(),
            longest_call,
            cycles,
            disturbance: self.disturbance(),
            expiry,
        })
    }

    pub fn status(&self) -> String {
        let (Some(load), Some(sample)) = (self.loads.last(), self.samples.last()) else {
            return "nothing so far".to_owned();
        };
        format!(
            "backlog {}, p99 {:.0} ms, used {} of {}, client buffers {}, evicted {}, expired {}, {} of those looked at last",
            count(load.totals.backlog() as f64),
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

pub enum Seen {
    /// The server's own numbers, asked for 200 times a second. Those of several connections are not in order.
    Info(Sample),
    /// The generator's counts, ten times a second.
    Load(Load),
}

/// The server before the load, and the rate that follows from it.
#[derive(Clone, Copy, Debug)]
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

/// What was seen, from the beginning of the load to its end.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the load ended, in seconds since 1970.
    pub at: f64,
    /// Whether the run was ended by the user.
    pub interrupted: bool,
    pub seconds: f64,
    pub load: Load,
    pub answered: u64,
    /// Requests due a second at the end.
    pub rate: f64,
    pub evicted_keys: u64,
    /// How long the longest evicting call took according to the server, in seconds; `None` if all were brief.
    pub longest_call: Option<f64>,
    pub cycles: Vec<Cycle>,
    /// What was missing under load, if that was too much.
    pub disturbance: Option<String>,
    /// For `expire`: what expired, and what expired keys held at the end.
    pub expiry: Option<Expiry>,
}

/// The time between two questions.
///
/// The memory of a server that works off a backlog swells by tens of MiB in each round of its event loop. It is lowest
/// when the server answers the first question of the previous round. Rounds take 0.1 s and more, so this question was
/// asked within the first twentieth of a round.
const INTERVAL: Duration = Duration::from_millis(5);

/// How many of the clients' connections there are for each connection to ask on. Each question that waits for its
/// answer needs one.
///
/// A saturated server answers in one round of its event loop what it was asked in the round before, and a
/// round may take more than a second. One connection would get one answer a round. Fewer clients make shorter rounds.
const SHARE: usize = 5;
/// The fewest connections to ask on.
const FEWEST: usize = 100;

const MOST_FAVOURED: i32 = -20;

pub struct Recorder {
    clients: Vec<Client>,
    /// When the next question is due.
    next: Mutex<Instant>,
}

impl Recorder {
    /// Connects to a server with this many clients on this loopback port. What the connections take is part of its
    /// memory.
    pub fn connect(port: u16, clients: usize) -> Result<Self> {
        let connections = (clients / SHARE).max(FEWEST);
        let clients = (0..connections).map(|_| Client::connect(port));
        Ok(Self { clients: clients.collect::<Result<_>>()?, next: Mutex::new(Instant::now()) })
    }

    /// Returns functions that ask until `stop`, however late the answers are, each for a thread of its own.
    pub fn asking<'a>(
        &'a mut self,
        stop: &'a AtomicBool,
        lines: &'a Sender<Seen>,
    ) -> impl Iterator<Item = impl FnOnce() -> Result<()> + Send + 'a> {
        let next = &self.next;
        let ask = move |client: &'a mut Client| {
            let lines = lines.clone();
            move || {
                // The generator shares its core with this thread. A question that waited for it would be asked in the
                // middle of a round. Only root may go first; the record is coarser without it.
                let _ = setpriority_process(None, MOST_FAVOURED);
                while is_due(next, stop) {
                    // The receiver outlives this thread.
                    let _ = lines.send(Seen::Info(Sample::take(&mut *client)?));
                }
                Ok(())
            }
        };
        self.clients.iter_mut().map(ask)
    }
}

/// Waits for the time of the next question, and returns `false` after the last one. One thread waits for it, and the
/// others for that thread.
fn is_due(next: &Mutex<Instant>, stop: &AtomicBool) -> bool {
    // A panic elsewhere leaves a time as it was.
    let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
    if stop.load(Ordering::Relaxed) {
        return false;
    }
    let now = Instant::now();
    // Questions that fell due while every connection waited for an answer are left out.
    while *next < now {
        *next += INTERVAL;
    }
    thread::sleep(*next - now);
    true
}
