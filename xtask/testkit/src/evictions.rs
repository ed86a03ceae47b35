//! When a server evicts, by its own counter.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{clock::unix_time, redis::Redis};

/// From one reading to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// The evictions in some time: when `evicted_keys` first and last grew, each as the two readings between which it did,
/// in seconds since 1970.
pub struct Evictions {
    /// The first.
    pub first: Option<(f64, f64)>,
    /// The last.
    pub last: Option<(f64, f64)>,
    /// The times between two evictions, in seconds: at least, and at most.
    pub pauses: Vec<(f64, f64)>,
}

impl Evictions {
    /// Watches a server for some time.
    pub fn watch(redis: &Redis, time: Duration) -> Result<Self> {
        let begun = Instant::now();
        let mut seen = Self {
            first: None,
            last: None,
            pauses: Vec::new(),
        };
        let mut before = (unix_time()?, redis.info("evicted_keys")?);
        while begun.elapsed() < time {
            let asked = unix_time()?;
            let keys = redis.info("evicted_keys")?;
            let answered = unix_time()?;
            if keys > before.1 {
                seen.first.get_or_insert((before.0, answered));
                if let Some((from, to)) = seen.last {
                    seen.pauses.push((before.0 - to, answered - from));
                }
                seen.last = Some((before.0, answered));
            }
            before = (asked, keys);
            thread::sleep(PAUSE);
        }
        Ok(seen)
    }
}
