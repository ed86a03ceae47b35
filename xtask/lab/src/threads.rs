//! The threads of a load: the generator, the recorder, and what makes the server slow.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};

use crate::{
    clock::Clock,
    generator::Generator,
    record::{Event, Line, Run, What},
    recorder,
    schedule::Pace,
    stall::Stall,
};

/// How often a thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(200);

/// The threads of a load, which end when this is dropped.
pub struct Threads {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<()>>>,
    lines: Sender<Line>,
    /// The clock of the record.
    pub clock: Clock,
}

impl Threads {
    /// Begins the load, whose lines of the record go to `lines`.
    pub fn start(
        mut generator: Generator,
        run: &Run,
        lines: Sender<Line>,
        clock: Clock,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut load = Self {
            threads: recorder::start(run.port, clock, &stop, &lines)?,
            stop,
            lines,
            clock,
        };
        load.event(What::LoadBegins)?;
        let (stop, lines) = (Arc::clone(&load.stop), load.lines.clone());
        let pace = Pace::Rate(run.measured.rate);
        load.threads.push(thread::spawn(move || {
            // The receiver outlives the load.
            let tell = |line| drop(lines.send(line));
            generator.run(pace, tell, |_| stop.load(Ordering::Relaxed))
        }));
        if let Some(stall) = run.parameters.stall {
            load.stall(stall, run.pid);
        }
        Ok(load)
    }

    fn stall(&mut self, stall: Stall, pid: u32) {
        let (stop, lines, clock) = (Arc::clone(&self.stop), self.lines.clone(), self.clock);
        self.threads.push(thread::spawn(move || {
            let begins = Instant::now() + Duration::from_secs_f64(stall.after);
            while Instant::now() < begins && !stop.load(Ordering::Relaxed) {
                thread::sleep(begins.saturating_duration_since(Instant::now()).min(LOOK));
            }
            tell(&lines, clock, What::StallBegins)?;
            stall.inflict(pid, &stop)?;
            tell(&lines, clock, What::StallEnds)?;
            // A thread that has ended would end the load.
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(LOOK);
            }
            Ok(())
        }));
    }

    fn event(&self, what: What) -> Result<()> {
        tell(&self.lines, self.clock, what)
    }

    /// Returns whether a thread has ended, which it does early only for an error.
    pub fn broken(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends the threads, and fails with the first error among them.
    pub fn end(mut self) -> Result<()> {
        let told = self.event(What::LoadEnds);
        self.stop_threads().and(told)
    }

    fn stop_threads(&mut self) -> Result<()> {
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
        let _ = self.stop_threads();
    }
}

fn tell(lines: &Sender<Line>, clock: Clock, what: What) -> Result<()> {
    let at = clock.now();
    lines
        .send(Line::Event(Event { at, what }))
        .map_err(|_| anyhow!("the recorder has ended"))
}
