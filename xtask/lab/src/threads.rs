//! The threads of a load: the generator, the recorder, and a replica.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
};

use anyhow::{Result, anyhow};

use crate::{
    premise::Times,
    prepare::Prepared,
    record::{Line, Run, What, tell},
    replica,
    schedule::Rate,
};

/// The threads of a load, which end when this is dropped.
pub struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
    /// Requests due a second.
    pub rate: Arc<Rate>,
}

impl Threads {
    /// Begins the load, whose lines of the record go to `lines`.
    pub fn start(prepared: Prepared, run: &Run, lines: Sender<Line>) -> Result<Self> {
        let Prepared {
            mut generator,
            recorder,
            ..
        } = prepared;
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            threads: recorder.start(&stop, &lines),
            stop,
            rate: Arc::new(Rate::new(run.measured.rate)),
        };
        tell(&lines, What::LoadBegins)?;
        if let Some(replica) = run.parameters.replica {
            let (stop, lines, port) = (Arc::clone(&load.stop), lines.clone(), run.port);
            let come = move || replica::come(&replica, port, &stop, &lines);
            load.threads.push(thread::spawn(come));
        }
        let (stop, rate) = (Arc::clone(&load.stop), Arc::clone(&load.rate));
        let pid = run.pid;
        load.threads.push(thread::spawn(move || {
            let tell = |line| {
                // The receiver outlives the load. Where the server has none, it has ended, and with it the load.
                if let (Line::Load(_), Ok(times)) = (&line, Times::of(pid)) {
                    let _ = lines.send(Line::Times(times));
                }
                let _ = lines.send(line);
            };
            generator.run(&rate, tell, |_| stop.load(Ordering::Relaxed))
        }));
        Ok(load)
    }

    /// Returns whether a thread has ended, which it does early only for an error.
    pub fn broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads, and fails with the first error among them.
    pub fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let mut result = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(anyhow!("a thread of the lab panicked")));
            result = result.and(ended);
        }
        result
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // An error matters only to a caller of `end`.
        let _ = self.end();
    }
}
