//! The agent beside a run, and what it says.
//!
//! It starts with the load, so that the server's usual throughput is that of the load and not that of the
//! filling before.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use evictscope_model::answers::ListedBurst;
use evictscope_testkit::agent::Agent;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::scrape::Scrape;
use evictscope_testkit::wait::unix_time;
use evictscope_testkit::workspace;
use rustix::process::Signal;

/// How long the agent may take to finish a burst that is over in the record. It waits 4 s for memory to fall
/// further.
const SETTLE: Duration = Duration::from_secs(7);

/// The phase in which a server without a burst is.
const CALM: &str = "not_saturated";

pub struct Witness {
    agent: Agent,
    phase: Option<String>,
}

/// What the agent said at the end.
pub struct Testimony {
    /// All finished bursts, the oldest first.
    pub bursts: Vec<ListedBurst>,
    /// What is on `/metrics`.
    pub reading: Scrape,
}

impl Testimony {
    /// Returns for how long evictions stalled clients, in seconds, if that is known.
    pub fn stalled(&self) -> Option<f64> {
        let cause = [("cause", "eviction")];
        (self.reading.sum("evictscope_stall_seconds_total", &cause)).ok()
    }
}

impl Witness {
    pub fn start(program: &Path, server: &Redis) -> Result<Self> {
        let agent = Agent::of(program, &[])?;
        agent.watches(server)?;
        Ok(Self { agent, phase: None })
    }

    pub fn place(&self) -> String {
        format!("pid {}, {}", self.agent.pid(), self.agent.metrics_url())
    }

    /// Returns the phase that it shows, if that has changed since the last call.
    pub fn new_phase(&mut self, server: &Redis) -> Result<Option<String>> {
        let phase = self.phase_of(server)?;
        let is_new = phase != self.phase;
        self.phase.clone_from(&phase);
        Ok(phase.filter(|_| is_new))
    }

    /// Returns what it says once it has taken in all that happened until now. Calls `wait` again and again until then.
    pub fn testify(&self, server: &Redis, mut wait: impl FnMut() -> Result<()>) -> Result<Testimony> {
        let asked = Instant::now();
        while asked.elapsed() < SETTLE && self.phase_of(server)?.as_deref() != Some(CALM) {
            wait()?;
        }
        Ok(Testimony { bursts: self.agent.bursts(server)?, reading: self.agent.reading(server)? })
    }

    /// Ends it, which makes it write the records that wait, and copies all records into `target/lab`, into a directory
    /// with this name and the time.
    pub fn end(self, name: &str) -> Result<Vec<PathBuf>> {
        let into = workspace::target_directory()?.join("lab");
        let into = into.join(format!("{name}-{:.0}", unix_time()?));
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
        let reading = self.agent.reading(server)?;
        let phases = reading.by_label("evictscope_phase", "phase");
        Ok(phases.into_keys().next())
    }
}
