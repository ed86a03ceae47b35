//! What is seen of a run: the server's own numbers ten times a second and what they show, and what the agent says,
//! which can be judged against them.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use evictscope_model::answers::ListedBurst;
use evictscope_testkit::agent::Agent;
use evictscope_testkit::redis::{InfoAnswer, Redis};
use evictscope_testkit::scrape::Scrape;
use evictscope_testkit::text::{bytes, count, percent};
use evictscope_testkit::wait::unix_time;
use evictscope_testkit::workspace;
use rustix::process::Signal;

use crate::pace::LoadCounts;

/// The server's `latency-monitor-threshold`, in milliseconds: its latency monitor does not keep shorter calls.
pub const THRESHOLD: &str = "20";

const ANSWER: Duration = Duration::from_secs(30);

/// How long without an eviction ends a burst, in seconds, by the definition of a burst.
const QUIET: f64 = 1.0;

/// Visits each key once. A SCAN deletes each expired key that it meets. In a script the server's clock stands still: no
/// key expires while it runs, and all that had expired when it began are deleted.
const SCAN: &str = include_str!("scripts/scan.lua");

/// One answer to `INFO`. Sizes are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct InfoSample {
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
    /// Keys, including expired ones (`DBSIZE`), and those of them with a time to live.
    pub keys: u64,
    pub keys_with_ttl: u64,
}

/// A connection for samples. It stays open, because a busy server would take two more turns to answer each new one.
pub struct SampleConnection(BufReader<TcpStream>);

impl SampleConnection {
    pub fn of(server: &Redis) -> Result<Self> {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        connection.set_read_timeout(Some(ANSWER))?;
        Ok(Self(BufReader::new(connection)))
    }

    pub fn sample(&mut self) -> Result<InfoSample> {
        self.0.get_mut().write_all(b"INFO server memory stats keyspace\r\n")?;
        let mut length = String::new();
        self.0.read_line(&mut length)?;
        let bytes = length.strip_prefix('$').and_then(|length| length.trim_end().parse::<usize>().ok());
        let mut answer = vec![0; bytes.with_context(|| format!("no answer to INFO: {length:?}"))? + 2];
        self.0.read_exact(&mut answer)?;
        InfoSample::parse(String::from_utf8(answer)?).context("the lab needs Redis 7.0 or later")
    }
}

impl InfoSample {
    pub fn take(server: &Redis) -> Result<Self> {
        SampleConnection::of(server)?.sample()
    }

    fn parse(answer: String) -> Result<Self> {
        // A server without keys has no such line.
        let keyspace =
            answer.lines().find_map(|line| line.strip_prefix("db0:")).unwrap_or("keys=0,expires=0").to_owned();
        let of_keys = |name: &str| {
            let value = keyspace.split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
            value.with_context(|| format!("no {name} in INFO keyspace: {keyspace}"))
        };
        let info = InfoAnswer(answer);
        let number = |name: &str| anyhow::Ok(info.number(name)? as u64);
        Ok(Self {
            at: info.number("server_time_usec")? / 1e6,
            used_memory: number("used_memory")?,
            maxmemory: number("maxmemory")?,
            client_buffers: number("mem_clients_normal")?,
            evicted_keys: number("evicted_keys")?,
            expired_keys: number("expired_keys")?,
            stale_ratio: info.number("expired_stale_perc")? / 100.0,
            keys: of_keys("keys")?,
            keys_with_ttl: of_keys("expires")?,
        })
    }

    /// Returns the memory that belongs to no client. Clients come and go, and their buffers with them.
    fn without_clients(&self) -> u64 {
        self.used_memory.saturating_sub(self.client_buffers)
    }

    pub fn status(&self, load: &LoadCounts) -> String {
        format!(
            "backlog {}, p99 {:.0} ms, used {} of {}, client buffers {}, evicted {}, expired {}, {} of those looked at last",
            count(load.totals.backlog() as f64),
            load.latency_p99 * 1000.0,
            bytes(self.used_memory),
            bytes(self.maxmemory),
            bytes(self.client_buffers),
            count(self.evicted_keys as f64),
            count(self.expired_keys as f64),
            percent(self.stale_ratio),
        )
    }
}

/// From the first eviction after a quiet time until the last one before a quiet time. Times are seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub struct EvictionCycle {
    /// The last sample before the first eviction. A server that is busy for long answers none in between.
    pub start: f64,
    /// The first sample after the last one.
    pub end: f64,
    pub evicted_keys: u64,
}

impl EvictionCycle {
    /// Finds the bursts in samples that are in the order of time.
    pub fn all(samples: &[InfoSample]) -> Vec<Self> {
        let mut cycles: Vec<Self> = Vec::new();
        for pair in samples.windows(2) {
            let evicted_keys = pair[1].evicted_keys.saturating_sub(pair[0].evicted_keys);
            if evicted_keys == 0 {
                continue;
            }
            match cycles.last_mut() {
                Some(cycle) if pair[0].at - cycle.end < QUIET => {
                    cycle.end = pair[1].at;
                    cycle.evicted_keys += evicted_keys;
                }
                _ => cycles.push(Self { start: pair[0].at, end: pair[1].at, evicted_keys }),
            }
        }
        cycles
    }
}

/// Returns how long the longest evicting call took since the latency monitor was reset, in seconds, if it is above
/// [`THRESHOLD`].
pub fn longest_evicting_call(server: &Redis) -> Result<Option<f64>> {
    let latest = server.cli(&["latency", "latest"])?;
    // For each event its name, the time, and the duration of the last and of the longest one.
    let longest = latest.lines().skip_while(|line| *line != "eviction-cycle").nth(3);
    Ok(longest.map(str::parse::<f64>).transpose()?.map(|milliseconds| milliseconds / 1e3))
}

pub fn set_active_expiry(server: &Redis, value: &str) -> Result<()> {
    let answer = server.cli(&["debug", "set-active-expire", value])?;
    anyhow::ensure!(answer.trim() == "OK", "active expiry cannot be switched: {answer}");
    Ok(())
}

/// What a load did to the keys with a time to live, and what expired keys hold: the memory that a full SCAN frees, as
/// Twitter measured it, beside an estimate of it.
#[derive(Clone, Copy, Debug)]
pub struct Expiry {
    /// Keys that expired under load.
    pub expired_keys: u64,
    /// After the load.
    pub before: InfoSample,
    /// Keys that the SCAN deleted, and the bytes that it freed, except for those of clients.
    pub held_keys: u64,
    pub held: u64,
    /// What expired keys held as the recording rule has it: from the stale ratio, used memory and client buffers.
    pub estimate: f64,
}

impl Expiry {
    /// Switches active expiry off after a load that began with `begin`, so that a SCAN alone frees memory, and lets one
    /// delete what has expired.
    pub fn end(begin: InfoSample, server: &Redis) -> Result<Self> {
        set_active_expiry(server, "0")?;
        let before = InfoSample::take(server)?;
        server.cli(&["eval", SCAN, "0"])?;
        let after = InfoSample::take(server)?;
        Ok(Self {
            expired_keys: before.expired_keys - begin.expired_keys,
            before,
            held_keys: after.expired_keys - before.expired_keys,
            held: before.without_clients().saturating_sub(after.without_clients()),
            estimate: before.stale_ratio * before.without_clients() as f64,
        })
    }
}

/// How long the agent may take to finish a burst that is over in the record. It waits 4 s for memory to fall
/// further.
const FINISH: Duration = Duration::from_secs(7);

/// The phase in which a server without a burst is.
const CALM: &str = "not_saturated";

/// The agent beside a run. It starts with the load, so that the server's usual throughput is that of the load and not
/// that of the filling before.
pub struct Witness {
    pub agent: Agent,
    phase: Option<String>,
}

/// What the agent said at the end.
pub struct Testimony {
    /// All finished bursts, the oldest first.
    pub bursts: Vec<ListedBurst>,
    /// What is on `/metrics`.
    pub reading: Scrape,
}

impl Witness {
    pub fn start(program: &Path, server: &Redis) -> Result<Self> {
        let agent = Agent::of(program, &[])?;
        agent.watches(server)?;
        Ok(Self { agent, phase: None })
    }

    /// Returns the phase that it shows, if that has changed since the last call.
    pub fn new_phase(&mut self, server: &Redis) -> Result<Option<String>> {
        let now = self.phase_of(server)?;
        let before = std::mem::replace(&mut self.phase, now);
        Ok(self.phase.clone().filter(|_| before != self.phase))
    }

    /// Returns what it says once it has taken in all that happened until now. Calls `wait` again and again until then.
    pub fn testify(&self, server: &Redis, mut wait: impl FnMut() -> Result<()>) -> Result<Testimony> {
        let asked = Instant::now();
        while asked.elapsed() < FINISH && self.phase_of(server)?.as_deref() != Some(CALM) {
            wait()?;
        }
        Ok(Testimony { bursts: self.agent.bursts(server)?, reading: self.agent.reading(server)? })
    }

    /// Ends it, which makes it write the records that wait, and copies all records into `target/lab`, into a directory
    /// with this name and the time.
    pub fn end(self, name: &str) -> Result<Vec<PathBuf>> {
        let into = workspace::target_directory()?.join(format!("lab/{name}-{:.0}", unix_time()?));
        self.agent.end(Signal::TERM)?;
        let mut records = workspace::entries(&self.agent.state().join("records"))?;
        records.retain(|record| record.to_string_lossy().ends_with(".json.gz"));
        let mut copies = Vec::new();
        for record in records {
            fs::create_dir_all(&into)?;
            let copy = into.join(record.file_name().context("a record has no name")?);
            fs::copy(&record, &copy).with_context(|| format!("cannot copy {}", record.display()))?;
            copies.push(copy);
        }
        Ok(copies)
    }

    fn phase_of(&self, server: &Redis) -> Result<Option<String>> {
        Ok(self.agent.reading(server)?.by_label("evictscope_phase", "phase").into_keys().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nserver_time_usec:1000000500000\r\nused_memory:1024\r\nused_memory_human:1.00K\r\nmaxmemory:2048\r\n\
        mem_clients_normal:512\r\nexpired_keys:5\r\nexpired_stale_perc:12.34\r\nevicted_keys:7\r\n";

    #[test]
    fn fields_are_found_by_their_whole_names() -> Result<()> {
        let sample = InfoSample::parse(TEXT.to_owned())?;
        assert_eq!((sample.at, sample.used_memory, sample.evicted_keys, sample.keys), (1_000_000.5, 1024, 7, 0));
        assert!((sample.stale_ratio - 0.1234).abs() < 1e-9);
        let sample = InfoSample::parse(format!("{TEXT}db0:keys=12,expires=7,avg_ttl=3000\r\n"))?;
        assert_eq!((sample.keys, sample.keys_with_ttl), (12, 7));
        Ok(())
    }

    #[test]
    fn only_a_quiet_time_ends_a_burst() {
        let found = |pause: f64| {
            let evicted = [(0.0, 9), (0.5, 10), (1.0, 11), (1.0 + pause, 11), (2.0 + pause, 13)];
            let samples = evicted.map(|(at, evicted_keys)| InfoSample { at, evicted_keys, ..InfoSample::default() });
            Vec::from_iter(
                EvictionCycle::all(&samples).into_iter().map(|cycle| (cycle.start, cycle.end, cycle.evicted_keys)),
            )
        };
        assert_eq!(found(0.5), [(0.0, 2.5, 4)]);
        assert_eq!(found(1.5), [(0.0, 1.0, 2), (2.5, 3.5, 2)]);
    }
}
