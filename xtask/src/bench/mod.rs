//! `cargo xtask bench`: what watching servers costs them, and what scraping the agent costs it.

mod cores;
mod exporters;
mod log;
mod page;
mod probes;
mod report;
mod rivals;
mod scrape;
mod scrape_report;
mod side;
mod spread;
mod target;

use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Bench {
    /// A redis-server bare, under evictscope in each probe mode, funclatency and bpftrace, in turn
    Probes(probes::Arguments),
    /// The agent with 1, 16 and 64 redis-servers: series, and size, time and CPU of a scrape, beside redis_exporter's
    Scrape(scrape::Arguments),
}

/// Measures and prints.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Probes(arguments) => probes::run(arguments),
        Bench::Scrape(arguments) => scrape::run(*arguments),
    }
}
