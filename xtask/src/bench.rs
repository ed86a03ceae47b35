//! `cargo xtask bench`: what watching servers costs them.

use anyhow::{Result, ensure};
use evictscope_bench::Bench;
use evictscope_testkit::workspace;

use crate::build;

/// Builds the agent and measures it.
pub fn run(bench: &Bench) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the probes need root: run `cargo xtask bench` as root"
    );
    build::run()?;
    bench.run(&workspace::agent_binary()?)
}
