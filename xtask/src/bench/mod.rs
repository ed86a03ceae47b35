//! `cargo xtask bench`: what watching a server costs it.

mod cores;
mod probes;
mod report;
mod rivals;
mod side;
mod spread;
mod target;

use anyhow::Result;

/// What to measure.
#[derive(clap::Subcommand)]
pub enum Bench {
    /// A redis-server bare, under evictscope in each probe mode, funclatency and bpftrace, in turn
    Probes(probes::Arguments),
}

/// Measures and prints.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Probes(arguments) => probes::run(arguments),
    }
}
