//! Waiting until something has happened.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

/// From one attempt to the next.
const PAUSE: Duration = Duration::from_millis(20);

/// Repeats `attempt` until it has an answer, and returns that with the time it took.
///
/// # Errors
///
/// Fails with `what` after `limit`, and at once where an attempt fails.
pub fn within<T>(
    limit: Duration,
    what: &str,
    mut attempt: impl FnMut() -> Result<Option<T>>,
) -> Result<(T, Duration)> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = attempt()? {
            return Ok((answer, begun.elapsed()));
        }
        if begun.elapsed() > limit {
            bail!("not within {limit:?}: {what}");
        }
        thread::sleep(PAUSE);
    }
}
