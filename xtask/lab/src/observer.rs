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

/// [`Load`]s in a second.
const SECOND: usize = 10;

/// What was seen of a run so far.
pub struct Observer {
    /// When the load began, and when a visitor comes.
    begun: f64,
    comes: f64,
    samples: Vec<Sample>,
    loads: Vec<Load>,
}

impl Observer {
    /// Begins with a load that begins now.
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

    /// Takes in what was seen.
    pub fn take(&mut self, seen: Seen) {
        match seen {
            Seen::Info(sample) => self.samples.push(sample),
            Seen::Load(load) => self.loads.push(load),
        }
    }

    /// Returns whether nothing but the load has happened: no key was evicted, and no visitor has come.
    pub fn is_calm(&self) -> bool {
        let evicted = |sample: Option<&Sample>| sample.map(|sample| sample.evicted_keys);
        evicted(self.samples.first()) == evicted(self.samples.last())
            && self.last_load().is_none_or(|load| load.at < self.comes)
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
        cycles::find(self.begun, &self.samples, &self.loads)
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
        let (samples, loads) = (&self.samples, &self.loads);
        let (first, last) =
            (samples.first().zip(samples.last())).context("INFO was not answered")?;
        let (begin, load) = (loads.first().zip(loads.last())).context("there was no load")?;
        let backlogs = loads.iter().map(|load| load.backlog_peak);
        let buffers = samples.iter().map(|sample| sample.client_buffers);
        Ok(Outcome {
            at,
            interrupted,
            seconds: at - self.begun,
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
        })
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

/// One thing that was seen.
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

/// The time between two questions.
///
/// The memory of a server that works off a backlog swells by tens of MiB in each round of its event loop. It is lowest
/// when the server answers the first question of the previous round. Rounds take 0.1 s and more, so this question was
/// asked within the first twentieth of a round.
const INTERVAL: Duration = Duration::from_millis(5);

/// How many of the clients' connections there are for each connection to ask on. Each question that waits for its answer
/// needs one.
///
/// A saturated server answers in one round of its event loop what it was asked in the round before, and a
/// round may take more than a second. One connection would get one answer a round. Fewer clients make shorter rounds.
const SHARE: usize = 5;
/// The fewest connections to ask on.
const FEWEST: usize = 100;

/// The lowest nice value.
const MOST_FAVOURED: i32 = -20;

/// Connections to ask on.
pub struct Recorder {
    clients: Vec<Client>,
    /// When the next question is due.
    next: Mutex<Instant>,
}

impl Recorder {
    /// Connects to a server with this many clients on this loopback port. What the connections take is part of its memory.
    pub fn connect(port: u16, clients: usize) -> Result<Self> {
        let connections = (clients / SHARE).max(FEWEST);
        let clients = (0..connections).map(|_| Client::connect(port));
        Ok(Self {
            clients: clients.collect::<Result<_>>()?,
            next: Mutex::new(Instant::now()),
        })
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
