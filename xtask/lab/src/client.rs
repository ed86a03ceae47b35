//! A blocking connection, which asks the server and fills it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::redis::Info;
use redis::{Connection, ConnectionLike as _, Value};

use crate::workload::Workload;

/// How long one answer may take, even from a saturated server.
const TIMEOUT: Duration = Duration::from_secs(30);

const PIPELINE: usize = 1000;

/// The server's `latency-monitor-threshold`, in milliseconds: its latency monitor does not keep shorter calls.
pub const THRESHOLD: &str = "20";

pub struct Client(Connection);

impl Client {
    pub fn connect(port: u16) -> Result<Self> {
        let connection = redis::Client::open(("127.0.0.1", port))
            .and_then(|client| client.get_connection_with_timeout(TIMEOUT))
            .context("cannot connect to the redis-server of the lab")?;
        connection.set_read_timeout(Some(TIMEOUT))?;
        connection.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self(connection))
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
            let answers =
                self.0.req_packed_commands(&commands, 0, batch).context("cannot fill the redis-server of the lab")?;
            let done = answers.iter().filter(|answer| **answer == Value::Okay);
            let errors = batch - done.count();
            ensure!(errors == 0, "the server refused {errors} of {batch} SETs");
            left -= batch;
        }
        Ok(())
    }
}

/// The question. Its answer takes 50 µs of the main thread; asked 200 times a second, that is 1 % of it.
const QUESTION: [&str; 5] = ["INFO", "server", "memory", "stats", "keyspace"];

/// One answer to `INFO`. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// When the server wrote the answer, by its own clock (`server_time_usec`), in seconds since 1970.
    pub at: f64,
    pub used_memory: u64,
    pub maxmemory: u64,
    /// `mem_clients_normal`
    pub client_buffers: u64,
    pub evicted_keys: u64,
    pub expired_keys: u64,
    /// `expired_stale_perc`, as a share between 0 and 1.
    pub stale_ratio: f64,
    /// `total_commands_processed`
    pub commands: u64,
    /// Keys, including expired ones (`DBSIZE`).
    pub keys: u64,
    /// Those with a time to live.
    pub keys_with_ttl: u64,
}

impl Sample {
    pub fn take(client: &mut Client) -> Result<Self> {
        Self::parse(client.call(&QUESTION)?).context("the lab needs Redis 7.0 or later")
    }

    fn parse(answer: String) -> Result<Self> {
        // A server without keys has no such line.
        let keys = answer.lines().find_map(|line| line.strip_prefix("db0:"));
        let keys = keys.unwrap_or("keys=0,expires=0").to_owned();
        let of_keys = |name: &str| {
            let mut fields = keys.split(',');
            let value = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
            let value = value.and_then(|value| value.parse().ok());
            value.with_context(|| format!("no {name} in INFO keyspace: {keys}"))
        };
        let info = Info::new(answer);
        let count = |name: &str| anyhow::Ok(info.number(name)? as u64);
        Ok(Self {
            at: info.number("server_time_usec")? / 1e6,
            used_memory: count("used_memory")?,
            maxmemory: count("maxmemory")?,
            client_buffers: count("mem_clients_normal")?,
            evicted_keys: count("evicted_keys")?,
            expired_keys: count("expired_keys")?,
            stale_ratio: info.number("expired_stale_perc")? / 100.0,
            commands: count("total_commands_processed")?,
            keys: of_keys("keys")?,
            keys_with_ttl: of_keys("expires")?,
        })
    }

    /// Returns the memory that belongs to no client. Clients come and go, and their buffers with them.
    pub fn without_clients(&self) -> u64 {
        self.used_memory.saturating_sub(self.client_buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nserver_time_usec:1000000500000\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\n\
        mem_clients_normal:512\r\ntotal_commands_processed:99\r\nexpired_keys:5\r\nexpired_stale_perc:12.34\r\n\
        evicted_keys:7\r\n";

    #[test]
    fn fields_are_found_by_their_whole_names() -> Result<()> {
        let sample = Sample::parse(TEXT.to_owned())?;
        assert_eq!(sample.at, 1_000_000.5);
        assert_eq!(sample.used_memory, 1024);
        assert_eq!(sample.evicted_keys, 7);
        assert!((sample.stale_ratio - 0.1234).abs() < 1e-9);
        assert_eq!(sample.keys, 0);
        let sample = Sample::parse(format!("{TEXT}db0:keys=12,expires=7,avg_ttl=3000\r\n"))?;
        assert_eq!((sample.keys, sample.keys_with_ttl), (12, 7));
        Ok(())
    }
}
