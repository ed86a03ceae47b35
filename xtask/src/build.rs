//! `cargo xtask build`: sets up, then builds the agent.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};

use crate::setup::{self, For};

/// Installs what is missing and builds the release binary, with cargo's own progress on the terminal. Returns its path.
pub fn run() -> Result<PathBuf> {
    naming(&[])
}

/// Does the same with these variables, which tell the agent what it is built from.
pub fn naming(variables: &[(&str, String)]) -> Result<PathBuf> {
    setup::run(For::Release)?;
    let mut cargo = workspace::cargo();
    cargo.args(["build", "--release", "--locked", "--package", "evictscope"]);
    build(cargo.envs(variables.iter().map(|(name, value)| (name, value))))?;
    workspace::agent_binary()
}

/// Does the same with the agent that tests run. That is built in a fraction of the time, and what is built serves them.
pub fn for_tests() -> Result<PathBuf> {
    setup::run(For::Demo)?;
    // With the agent's package alone, dependencies would have fewer features than in the tests, and be built again.
    build(workspace::cargo().args(["build", "--locked"]))?;
    Ok(workspace::target_directory()?.join("debug/evictscope"))
}

fn build(cargo: &mut Command) -> Result<()> {
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "`{}` failed", process::display(cargo));
    Ok(())
}
