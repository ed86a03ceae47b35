//! The agent beside a run, and what it says.
//!
//! It starts with the load, so that the server's usual throughput is that of the load and not that of the
//! filling before.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use evictscope_testkit::{
    agent::{Agent, Program},
    burst::Burst,
    redis::Redis,
    scrape::Scrape,
};

use crate::{
    expired::EXPIRED_KEYS,
    expiry::Expiry,
    kept::{self, Kept},
};

/// How long the agent may take to finish a burst that is over in the record. It waits 4 s for memory to fall
/// further.
const SETTLE: Duration = Duration::from_secs(7);

/// The phase in which a server without a burst is.
const CALM: &str = "not_saturated";

/// A running agent that watches the server.
pub struct Witness {
    /// Its process.
    pub agent: Agent,
    phase: Option<String>,
}

/// What the agent said in the end.
pub struct Testimony {
    /// All finished bursts, the oldest first.
    pub bursts: Vec<Burst>,
    /// What is on `/metrics`.
    pub reading: Scrape,
    /// The records that it kept, where they are judged.
    pub records: Option<Vec<Kept>>,
    /// What was there when expired keys had been deleted, where that was measured.
    pub expiry: Option<Scrape>,
}

impl Testimony {
    /// Returns for how long evictions stalled the server, in seconds.
    pub fn stalled(&self) -> Result<f64> {
        let cause = [("cause", "eviction")];
        self.reading.sum("evictscope_stall_seconds_total", &cause)
    }
}

impl Witness {
    /// Starts the agent on this loopback port, and waits until it watches the server.
    pub fn start(program: &Program, port: u16, server: &Redis) -> Result<Self> {
        let agent = Agent::start_command(program.run(), port, &[])?;
        agent.watches(server)?;
        Ok(Self { agent, phase: None })
    }

    /// Returns the phase that it shows, where that has changed since the last call.
    pub fn new_phase(&mut self, server: &Redis) -> Result<Option<String>> {
        let phase = self.phase_of(server)?;
        let is_new = phase != self.phase;
        self.phase.clone_from(&phase);
        Ok(phase.filter(|_| is_new))
    }

    /// Returns what it says once it has taken in all that happened until now.
    pub fn testify(&self, server: &Redis) -> Result<Testimony> {
        let asked = Instant::now();
        while asked.elapsed() < SETTLE && self.phase_of(server)?.as_deref() != Some(CALM) {
            thread::sleep(Duration::from_millis(200));
        }
        Ok(Testimony {
            bursts: self.agent.bursts(server)?,
            reading: self.agent.reading(server)?,
            records: None,
            expiry: None,
        })
    }

    /// Waits for its records of the bursts and the stall that it told of, and copies them into `into`.
    pub fn records_of(&self, testimony: &Testimony, into: &Path) -> Result<Vec<Kept>> {
        let has_stalled = testimony.stalled()? >= kept::STALL;
        kept::collect(self.agent.state(), &testimony.bursts, has_stalled, into)
    }

    /// Returns what it says once it has taken in the expired keys of a SCAN.
    pub fn testify_of(&self, expiry: &Expiry, server: &Redis) -> Result<Scrape> {
        let asked = Instant::now();
        let expired = expiry.after.sample.expired_keys as f64;
        loop {
            let reading = self.agent.reading(server)?;
            let has_it = reading.sum(EXPIRED_KEYS, &[]).ok() == Some(expired);
            if has_it || asked.elapsed() >= SETTLE {
                return Ok(reading);
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn phase_of(&self, server: &Redis) -> Result<Option<String>> {
        let reading = self.agent.reading(server)?;
        let phases = reading.by_label("evictscope_phase", "phase");
        Ok(phases.into_keys().next())
    }
}
