//! The agent beside a run, and what it says.
//!
//! It starts with the load, so that what it takes for the server's usual throughput is the load's, not
//! that of the filling before.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    agent::{Agent, Program},
    redis::Server,
    scrape::{Burst, Reading},
};

/// How long the agent may take to tell a burst that is over for the record: it waits 2 s for memory
/// to fall further.
const SETTLE: Duration = Duration::from_secs(6);

/// The phase in which a server without a burst is.
const CALM: &str = "not_saturated";

/// A running agent that watches the server.
pub struct Witness {
    agent: Agent,
    phase: Option<String>,
}

/// What it said in the end.
pub struct Testimony {
    /// All finished bursts, the oldest first.
    pub bursts: Vec<Burst>,
    /// What is on `/metrics`.
    pub reading: Reading,
}

impl Witness {
    /// Starts the agent on this loopback port, and waits until it watches the server or `interrupted`
    /// says so.
    pub fn start(
        program: &Program,
        port: u16,
        server: &Server,
        interrupted: impl Fn() -> bool,
    ) -> Result<Self> {
        let mut agent = Agent::start_on(port, program, &[])?;
        agent.wait_for(server, interrupted)?;
        Ok(Self { agent, phase: None })
    }

    /// The agent's process id.
    pub fn pid(&self) -> u32 {
        self.agent.pid()
    }

    /// What runs, and how to look at it.
    pub fn heading(&self) -> String {
        format!(
            "evictscope     pid {}, {}",
            self.agent.pid(),
            self.agent.metrics_url()
        )
    }

    /// The phase that it shows, where that is another one than the last time.
    pub fn new_phase(&mut self, server: &Server) -> Result<Option<String>> {
        let phase = self.phase_of(server)?;
        let is_new = phase != self.phase;
        self.phase.clone_from(&phase);
        Ok(phase.filter(|_| is_new))
    }

    /// What it says when it has taken in what happened until now.
    pub fn testify(&mut self, server: &Server) -> Result<Testimony> {
        let asked = Instant::now();
        while asked.elapsed() < SETTLE && self.phase_of(server)?.as_deref() != Some(CALM) {
            thread::sleep(Duration::from_millis(200));
        }
        Ok(Testimony {
            bursts: self.agent.bursts(server)?,
            reading: self.agent.read(server)?,
        })
    }

    fn phase_of(&mut self, server: &Server) -> Result<Option<String>> {
        let phases = self
            .agent
            .read(server)?
            .by_label("evictscope_phase", "phase");
        Ok(phases.into_keys().next())
    }
}
