//! What a running agent answers.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use ureq::Agent as Http;

use super::reading::Reading;

/// How long an agent may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A finished burst, as the API lists it: what is shown of it.
#[derive(Clone, Debug, Deserialize)]
pub struct Burst {
    pub server: String,
    pub start: Option<String>,
    pub duration_seconds: f64,
    pub reclaim_seconds: f64,
    pub evicted_keys: Option<u64>,
    pub throughput_ratio: Option<f64>,
    pub client_buffers_before_bytes: Option<u64>,
    pub client_buffers_peak_bytes: Option<u64>,
    pub reclaimed_bytes: Option<u64>,
    pub kind: String,
}

#[derive(Deserialize)]
struct Bursts {
    bursts: Vec<Burst>,
}

/// A running agent.
pub struct Agent {
    url: String,
    http: Http,
}

impl Agent {
    /// The agent that serves at `url`, such as `http://127.0.0.1:9739`.
    pub fn at(url: &str) -> Self {
        let http = Http::config_builder()
            .timeout_global(Some(PATIENCE))
            .build();
        Self {
            url: url.trim_end_matches('/').to_owned(),
            http: http.into(),
        }
    }

    /// What its metrics say now.
    ///
    /// # Errors
    ///
    /// Where no agent answers, with how to start one.
    pub fn reading(&self) -> anyhow::Result<Reading> {
        let reading = Reading::parse(&self.get("/metrics")?.read_to_string()?)?;
        if !reading.is_of_evictscope {
            bail!(
                "{} answers, but is no evictscope: give the agent's address with --url",
                self.url
            );
        }
        Ok(reading)
    }

    /// The last finished bursts of all servers.
    ///
    /// # Errors
    ///
    /// As above.
    pub fn bursts(&self) -> anyhow::Result<Vec<Burst>> {
        let answer: Bursts = self.get("/api/v1/bursts")?.read_json()?;
        Ok(answer.bursts)
    }

    fn get(&self, path: &str) -> anyhow::Result<ureq::Body> {
        let answer = self.http.get(format!("{}{path}", self.url)).call();
        let answer = answer.with_context(|| {
            format!(
                "no agent answers at {}: start one with `sudo evictscope run`, or give the address of \
                 one that runs with --url",
                self.url
            )
        })?;
        Ok(answer.into_body())
    }
}
