//! A main thread made slow: the server is stopped and let go in short pulses, without any eviction.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

/// One stop and one go together: short against the rounds of the event loop that shall grow.
const PERIOD: Duration = Duration::from_millis(10);

/// When and how a server is held up.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Stall {
    /// When it begins, in seconds of load.
    pub after: f64,
    /// How long it lasts, in seconds.
    pub seconds: f64,
    /// Share of the time that the server is stopped in it.
    pub stopped_share: f64,
}

/// A stopped process neither ends nor answers: whatever happens, it is let go.
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
    /// Stops the server and lets it go until the time is over, or `end`.
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
