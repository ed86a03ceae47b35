//! A finished burst, as the agent's API describes it.

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde::{Deserialize, Deserializer};

/// The fields of a burst in docs/METRICS.md that tests and tasks use.
#[derive(Clone, Debug, Deserialize)]
pub struct Burst {
    /// The server's name.
    pub server: String,
    /// The first evicting call, in seconds since 1970.
    #[serde(deserialize_with = "unix_seconds")]
    pub start: f64,
    /// The last evicting call, in seconds since 1970.
    #[serde(deserialize_with = "unix_seconds")]
    pub end: f64,
    /// From `start` to `end`, in seconds.
    pub duration_seconds: f64,
    /// From `end` until memory had fallen, in seconds.
    pub reclaim_seconds: f64,
    /// Evicting calls, if they were counted.
    pub evicting_calls: Option<f64>,
    /// Keys evicted, if that is known.
    pub evicted_keys: Option<f64>,
    /// For how long clients were stalled, in seconds.
    pub stalled_seconds: Option<f64>,
    /// The highest client buffers.
    pub client_buffers_peak_bytes: Option<u64>,
    /// How far memory fell after the burst.
    pub reclaimed_bytes: Option<u64>,
    /// `self_amplifying`, `stalling`, `plain` or `unknown`.
    pub kind: String,
    /// Why it is of that kind.
    pub reason: String,
}

impl Burst {
    /// Reads the answer of `/api/v1/bursts`: the finished bursts of all servers, the oldest first.
    pub(crate) fn all(json: &str) -> Result<Vec<Self>> {
        #[derive(Deserialize)]
        struct Answer {
            bursts: Vec<Burst>,
        }
        let answer: Answer =
            serde_json::from_str(json).context("the agent's bursts are not as docs/METRICS.md describes them")?;
        Ok(answer.bursts)
    }
}

fn unix_seconds<'de, D: Deserializer<'de>>(time: D) -> Result<f64, D::Error> {
    let time = Timestamp::deserialize(time)?;
    Ok(time.as_millisecond() as f64 / 1e3)
}
