//! What the server says about itself: one answer to `INFO`, with the time at which it was true.

use anyhow::{Context as _, Result};

use crate::client::Client;

/// The question. Its answer takes 50 µs of the main thread; asked 200 times a second, that is 1 % of it.
const QUESTION: [&str; 5] = ["INFO", "server", "memory", "stats", "cpu"];

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
    /// `used_cpu_user_main_thread` + `used_cpu_sys_main_thread`, seconds.
    pub main_thread_cpu: f64,
}

impl Sample {
    /// Asks the server now.
    pub fn take(client: &mut Client) -> Result<Self> {
        Self::parse(&client.call(&QUESTION)?)
    }

    /// Reads an answer to `INFO`.
    pub fn parse(text: &str) -> Result<Self> {
        let value = |name: &str| number(text, name);
        let count = |name: &str| Ok::<_, anyhow::Error>(value(name)? as u64);
        Ok(Self {
            at: value("server_time_usec")? / 1e6,
            used_memory: count("used_memory")?,
            maxmemory: count("maxmemory")?,
            client_buffers: count("mem_clients_normal")?,
            evicted_keys: count("evicted_keys")?,
            expired_keys: count("expired_keys")?,
            stale_ratio: value("expired_stale_perc")? / 100.0,
            time_limit_hits: count("expired_time_cap_reached_count")?,
            expire_cycle_seconds: value("expire_cycle_cpu_milliseconds")? / 1e3,
            commands: count("total_commands_processed")?,
            main_thread_cpu: value("used_cpu_user_main_thread")?
                + value("used_cpu_sys_main_thread")?,
        })
    }
}

/// Returns one number of an answer to `INFO`.
fn number(text: &str, name: &str) -> Result<f64> {
    let found = text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        value.trim().parse().ok()
    });
    found.with_context(|| {
        format!("INFO of this redis-server has no {name}: the lab needs Redis 7.0 or later")
    })
}

#[cfg(test)]
impl Sample {
    /// An answer to `INFO`.
    pub const TEXT: &str = "# Server\r\nserver_time_usec:1000000500000\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\n\
        mem_clients_normal:512\r\ntotal_commands_processed:99\r\nexpired_keys:5\r\nexpired_stale_perc:12.34\r\n\
        expired_time_cap_reached_count:3\r\nexpire_cycle_cpu_milliseconds:1500\r\nevicted_keys:7\r\nused_cpu_sys_main_thread:0.25\r\nused_cpu_user_main_thread:1.5\r\n";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_names() -> Result<()> {
        let sample = Sample::parse(Sample::TEXT)?;
        assert_eq!(sample.at, 1_000_000.5);
        assert_eq!(sample.used_memory, 1024);
        assert_eq!(sample.evicted_keys, 7);
        assert!((sample.stale_ratio - 0.1234).abs() < 1e-9);
        assert_eq!(sample.expire_cycle_seconds, 1.5);
        assert_eq!(sample.main_thread_cpu, 1.75);
        Ok(())
    }

    #[test]
    fn a_missing_field_is_named() {
        let text = Sample::TEXT.replace("evicted_keys", "other");
        let error = Sample::parse(&text).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("evicted_keys")));
    }
}
