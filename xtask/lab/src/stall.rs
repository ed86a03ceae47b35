//! Makes the server slow without any eviction: it is stopped and let go in short pulses.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

/// The length of a pulse and the pause after it: short compared with a round of the event loop.
const PERIOD: Duration = Duration::from_millis(10);

/// When and how the server is made slow.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stall {
    /// When it begins, in seconds of load.
    pub after: f64,
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// Share of the time that the server is stopped in it.
    pub stopped_share: f64,
}

/// A stopped process, which continues when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Result<Self> {
        kill_process(pid, Signal::STOP).context("cannot stop the redis-server of the lab")?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

impl Stall {
    /// Stops the server and lets it go again until the time is over, or until `end`.
    pub fn inflict(&self, pid: u32, end: &AtomicBool) -> Result<()> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("the redis-server of the lab has no process id")?;
        let begun = Instant::now();
        let mut next = begun;
        while begun.elapsed().as_secs_f64() < self.seconds && !end.load(Ordering::Relaxed) {
            let stopped = Stopped::stop(pid)?;
            thread::sleep(PERIOD.mul_f64(self.stopped_share));
            drop(stopped);
            next += PERIOD;
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }
}
