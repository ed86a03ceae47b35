//! What watching servers costs them, and what scraping the agent costs it, beside the tools that one would use
//! otherwise. `cargo xtask bench` runs it.

mod exporters;
mod own_servers;
mod page;
mod probes;
mod report;
mod rivals;
mod scrape;
mod scrape_report;
mod side;
mod spread;
mod target;

use std::path::Path;

use anyhow::{Context as _, Result};
use evictscope_testkit::debian;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Bench {
    /// A redis-server bare, under evictscope in each probe mode, funclatency and bpftrace, in turn
    Probes(probes::Arguments),
    /// The agent with 1, 16 and 64 redis-servers: series, and size, time and CPU of a scrape, beside redis_exporter's
    Scrape(scrape::Arguments),
}

impl Bench {
    /// Installs what is measured beside this agent, measures, and prints the results. Needs root.
    pub fn run(&self, agent: &Path) -> Result<()> {
        let missing = match self {
            Self::Probes(_) => rivals::missing_packages(),
            Self::Scrape(_) => exporters::missing_packages(),
        };
        if !missing.is_empty() {
            let what = || format!("install these to measure with: {}", missing.join(", "));
            debian::installable().with_context(what)?;
            debian::install(&missing)?;
        }
        match self {
            Self::Probes(arguments) => probes::run(arguments, agent),
            Self::Scrape(arguments) => scrape::run(*arguments, agent),
        }
    }
}
