//! Asks the server for samples at fixed times.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;
use rustix::process::setpriority_process;

use crate::{client::Client, clock::Clock, record::Line, sample::Sample};

/// The time between two questions.
///
/// The memory of a server that works off a backlog swells by tens of MiB in each round of its event loop. It
/// is lowest when the server answers the first question of the round before. Rounds take 0.1 s and more, so
/// that this question was asked within a twentieth of a round from its beginning.
const INTERVAL: Duration = Duration::from_millis(5);

/// Connections to ask on, one for each question that waits for its answer.
///
/// A saturated server answers in one round of its event loop what it was asked in the round before, and a
/// round may take more than a second. One connection would get one answer a round.
const CONNECTIONS: usize = 600;

/// The lowest nice value.
const MOST_FAVOURED: i32 = -20;

/// Starts threads that ask until `stop`, however late the answers are.
pub fn start(
    port: u16,
    clock: Clock,
    stop: &Arc<AtomicBool>,
    lines: &Sender<Line>,
) -> Result<Vec<JoinHandle<Result<()>>>> {
    // Nothing waits in this channel: a question is asked at its time or not at all.
    let (ask, asked) = mpsc::sync_channel(0);
    let asked = Arc::new(Mutex::new(asked));
    let mut threads = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = Client::connect(port)?;
        let (asked, lines) = (Arc::clone(&asked), lines.clone());
        threads.push(thread::spawn(move || {
            go_first();
            while is_asked(&asked) {
                let sample = Sample::take(&mut client, &clock)?;
                if lines.send(Line::Info(sample)).is_err() {
                    break;
                }
            }
            Ok(())
        }));
    }
    let stop = Arc::clone(stop);
    threads.push(thread::spawn(move || {
        go_first();
        let mut due = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // Where every connection waits for an answer, there are enough questions.
            let _ = ask.try_send(());
            due += INTERVAL;
        }
        Ok(())
    }));
    Ok(threads)
}

/// Lets this thread run before the generator, with which it shares its core: a question that waited for the
/// generator would be asked in the middle of a round.
fn go_first() {
    // Only root may do this. The record is coarser without it.
    let _ = setpriority_process(None, MOST_FAVOURED);
}

/// Waits for the next question, and returns `false` after the last one.
fn is_asked(asked: &Mutex<Receiver<()>>) -> bool {
    // A panic elsewhere leaves a receiver as it was.
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    asked.recv().is_ok()
}
