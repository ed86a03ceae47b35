//! The longest evicting call, by the server's own latency monitor.

use anyhow::{Context as _, Result};
use evictscope_testkit::redis::Redis;

/// The server's `latency-monitor-threshold`: shorter calls are not kept, in milliseconds.
pub const THRESHOLD: &str = "20";

/// The monitor's name for an evicting call.
const EVENT: &str = "eviction-cycle";

/// Forgets all calls until now.
pub fn reset(server: &Redis) -> Result<()> {
    server.cli(&["latency", "reset"])?;
    Ok(())
}

/// Returns how long the longest one took since then, in seconds, where it is above the threshold.
pub fn longest_evicting_call(server: &Redis) -> Result<Option<f64>> {
    longest(&server.cli(&["latency", "latest"])?)
}

/// Reads what `redis-cli` prints: for each event its name, the time, and the duration of the last and the longest one.
fn longest(answer: &str) -> Result<Option<f64>> {
    let mut lines = answer.lines().skip_while(|line| *line != EVENT);
    if lines.next().is_none() {
        return Ok(None);
    }
    let milliseconds: f64 = lines.nth(2).context("LATENCY LATEST is cut off")?.parse()?;
    Ok(Some(milliseconds / 1e3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_one_is_the_last_number_of_its_event() -> Result<()> {
        let answer = "eviction-del\n1700000000\n900\n901\neviction-cycle\n1700000000\n23\n905\n";
        assert_eq!(longest(answer)?, Some(0.905));
        assert_eq!(longest("command\n1700000000\n25\n25\n")?, None);
        assert_eq!(longest("\n")?, None);
        Ok(())
    }
}
