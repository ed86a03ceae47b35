//! What watching servers costs them, compared with the tools that one would otherwise use, and what evicting costs.
//! `cargo xtask bench` runs it.

mod evictions;
mod probes;
mod side;

use std::path::Path;

use anyhow::{Context as _, Result};
use evictscope_testkit::debian;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Bench {
    /// Two redis-servers under one load, one of them watched by evictscope in each probe mode, funclatency and
    /// bpftrace, in turn
    Probes(probes::Arguments),
    /// What evicting a key costs the main thread, by its size
    Evictions(evictions::Arguments),
}

impl Bench {
    /// Installs what is compared with this agent, measures, and prints the results. Needs root.
    pub fn run(&self, agent: &Path) -> Result<()> {
        let arguments = match self {
            Self::Probes(arguments) => arguments,
            Self::Evictions(arguments) => return evictions::run(arguments, agent),
        };
        let missing = side::missing_packages();
        if !missing.is_empty() {
            let what = || format!("install these to measure with: {}", missing.join(", "));
            debian::installable().with_context(what)?;
            debian::install(&missing)?;
        }
        probes::run(arguments, agent)
    }
}
