//! Makes the server slow without any eviction: it is stopped and let go in short pulses.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    parameters::Stall,
    record::{Line, What, tell},
};

/// The length of a pulse and the pause after it: short compared with a round of the event loop.
const PERIOD: Duration = Duration::from_millis(10);

/// Makes the server `pid` slow at its time, tells of it, and then waits for `end`, because a thread that has ended
/// would end the load.
pub fn inflict(stall: &Stall, pid: u32, end: &AtomicBool, lines: &Sender<Line>) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.context("the redis-server of the lab has no process id")?;
    let signal = |signal| {
        kill_process(pid, signal).context("cannot stop the redis-server of the lab, or let it go")
    };
    each_period(stall.after, end, || Ok(()))?;
    tell(lines, What::StallBegins)?;
    each_period(stall.seconds, end, || {
        signal(Signal::STOP)?;
        thread::sleep(PERIOD.mul_f64(stall.stopped_share));
        signal(Signal::CONT)
    })?;
    tell(lines, What::StallEnds)?;
    each_period(f64::INFINITY, end, || Ok(()))
}

/// Repeats `pulse` in each [`PERIOD`] for this many seconds, or until `end`.
fn each_period(seconds: f64, end: &AtomicBool, pulse: impl Fn() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    let mut next = begun;
    while begun.elapsed().as_secs_f64() < seconds && !end.load(Ordering::Relaxed) {
        pulse()?;
        next += PERIOD;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}
