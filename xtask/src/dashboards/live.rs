//! Asks a real Prometheus all queries of the dashboards while the lab makes bursts, and keeps the answers to draw them.

use std::{path::Path, sync::atomic::AtomicBool, time::Duration};

use anyhow::{Context as _, Result};
use evictscope_lab::{Onlooker, cycles_before};
use evictscope_testkit::{
    agent::Program, clock::unix_time, process, prometheus::Prometheus, redis::Redis, workspace,
};

use super::{answers, folders, growing::Growing, recording, rules};

/// From one scrape to the next, and from one evaluation of the rules to the next.
const PACE: Duration = Duration::from_secs(1);

/// Bursts that the drawings show.
const BURSTS: usize = 2;

/// Keeps the answers to the queries of the dashboards in the sources, on the release build. It pins this process to a core
/// and takes over Ctrl-C.
pub fn run() -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let agent = Program::Built(workspace::agent_binary()?);
    cycles_before(&mut Live::default(), agent, BURSTS, &interrupted)
}

#[derive(Default)]
struct Live {
    /// What runs beside the lab, once the lab has called: since when, and what.
    stage: Option<(f64, Prometheus, Growing)>,
}

impl Onlooker for Live {
    fn come(&mut self, agent_port: u16) -> Result<()> {
        let rules = rules::files(&folders::sources().join("rules"))?;
        let prometheus = Prometheus::start(agent_port, &rules, PACE)?;
        self.stage = Some((unix_time()?, prometheus, Growing::start()?));
        Ok(())
    }

    fn ask(&mut self, server: &Redis, _agent: u32, _interrupted: &AtomicBool) -> Result<()> {
        let (start, prometheus, _growing) = self.stage.take().context("the lab has not begun")?;
        let dashboards: &Path = &folders::sources();
        let asked = answers::of_dashboards(&prometheus, dashboards, &server.name(), start)?;
        println!("{} queries answered", asked.count);
        recording::keep(&prometheus, asked.answers, start)
    }
}
