//! Asks the server for samples at fixed times.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::process::setpriority_process;

use crate::client::{Client, Sample};
use crate::observer::Seen;

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
