//! Waiting until something has happened, and the time.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

/// Longer than anything takes unless it hangs, however slow the machine is.
pub const HANG: Duration = Duration::from_secs(300);

const PAUSE: Duration = Duration::from_millis(20);

/// Repeats `is_so` until it returns `true`. Fails as [`until`] does.
pub fn until_true(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    until(what, || Ok(is_so()?.then_some(())))
}

/// Repeats `attempt` until it has an answer, and returns that. Fails with `what` if that hangs, and at once if an
/// attempt fails.
pub fn until<T>(what: &str, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = attempt()? {
            return Ok(answer);
        }
        if begun.elapsed() > HANG {
            bail!("did not happen within {HANG:?}: {what}");
        }
        thread::sleep(PAUSE);
    }
}

pub fn unix_time() -> Result<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.context("the clock is set before 1970")?.as_secs_f64())
}
