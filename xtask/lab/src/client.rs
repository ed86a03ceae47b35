//! A blocking connection, which asks the server and fills it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use redis::{Connection, ConnectionLike as _, Value};

use crate::workload::Workload;

/// How long one answer may take, even from a saturated server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Commands sent at once while filling.
const PIPELINE: usize = 1000;

/// The server's `latency-monitor-threshold`, in milliseconds: its latency monitor does not keep shorter calls.
pub const THRESHOLD: &str = "20";

/// A connection to the lab's server.
pub struct Client(Connection);

impl Client {
    /// Connects to the server on this loopback port.
    pub fn connect(port: u16) -> Result<Self> {
        let connection = redis::Client::open(("127.0.0.1", port))
            .and_then(|client| client.get_connection_with_timeout(TIMEOUT))
            .context("cannot connect to the redis-server of the lab")?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        let mut client = Self(connection);
        // The lab must be able to ask while the server disconnects clients.
        client.call(&["CLIENT", "NO-EVICT", "ON"])?;
        Ok(client)
    }

    /// Sends one command and returns its answer, which must be a string.
    pub fn call(&mut self, words: &[&str]) -> Result<String> {
        let answer = redis::Cmd::new().arg(words).query(&mut self.0);
        answer.context("the redis-server of the lab does not answer")
    }

    /// Returns how long the longest evicting call took since the latency monitor was reset, in seconds, if it is above
    /// [`THRESHOLD`].
    pub fn longest_evicting_call(&mut self) -> Result<Option<f64>> {
        let mut latest = redis::cmd("LATENCY");
        // For each event its name, the time, and the duration of the last and of the longest one.
        let events: Vec<(String, u64, f64, f64)> = latest.arg("LATEST").query(&mut self.0)?;
        let mut calls = events.iter().filter(|event| event.0 == "eviction-cycle");
        Ok(calls.next().map(|(_, _, _, longest)| longest / 1e3))
    }

    /// Sets `keys` new keys, with the times to live that keys written over time would have left.
    pub fn fill(&mut self, workload: &mut Workload, keys: usize) -> Result<()> {
        let mut left = keys;
        while left > 0 {
            let batch = left.min(PIPELINE);
            let mut commands = Vec::new();
            for _ in 0..batch {
                workload.set_earlier(&mut commands);
            }
            let answers = self
                .0
                .req_packed_commands(&commands, 0, batch)
                .context("cannot fill the redis-server of the lab")?;
            let done = answers.iter().filter(|answer| **answer == Value::Okay);
            let errors = batch - done.count();
            ensure!(errors == 0, "the server refused {errors} of {batch} SETs");
            left -= batch;
        }
        Ok(())
    }
}
