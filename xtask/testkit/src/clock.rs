//! Times in seconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};

/// Returns the time now in seconds since 1970.
pub fn unix_time() -> Result<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.context("the clock is set before 1970")?.as_secs_f64())
}
