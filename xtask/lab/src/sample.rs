//! What the server says about itself: one answer to `INFO`, with the time at which it was true.

use anyhow::{Context as _, Result};
use evictscope_testkit::redis::Info;

use crate::client::Client;

/// The question. Its answer takes 50 µs of the main thread; asked 200 times a second, that is 1 % of it.
const QUESTION: [&str; 5] = ["INFO", "server", "memory", "stats", "keyspace"];

/// One answer to `INFO`. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Sample {
    /// When the server wrote the answer, by its own clock (`server_time_usec`), in seconds since 1970.
    pub at: f64,
    /// `used_memory`
    pub used_memory: u64,
    /// `maxmemory`
    pub maxmemory: u64,
    /// `mem_clients_normal`
    pub client_buffers: u64,
    /// `evicted_keys`
    pub evicted_keys: u64,
    /// `expired_keys`
    pub expired_keys: u64,
    /// `expired_stale_perc`, as a share between 0 and 1.
    pub stale_ratio: f64,
    /// `expired_time_cap_reached_count`
    pub time_limit_hits: u64,
    /// `expire_cycle_cpu_milliseconds`, in seconds.
    pub expire_cycle_seconds: f64,
    /// `total_commands_processed`
    pub commands: u64,
    /// Keys, including expired ones (`DBSIZE`).
    pub keys: u64,
    /// Those with a time to live.
    pub keys_with_ttl: u64,
}

impl Sample {
    /// Asks the server now.
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
            time_limit_hits: count("expired_time_cap_reached_count")?,
            expire_cycle_seconds: info.number("expire_cycle_cpu_milliseconds")? / 1e3,
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
        expired_time_cap_reached_count:3\r\nexpire_cycle_cpu_milliseconds:1500\r\nevicted_keys:7\r\n";

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

    #[test]
    fn a_missing_field_is_named() {
        let text = TEXT.replace("evicted_keys", "other");
        let error = Sample::parse(text).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("evicted_keys")));
        assert!(Sample::parse(format!("{TEXT}db0:keys=12\r\n")).is_err());
    }
}
