//! `cargo xtask build`: sets up, then runs `cargo build --release --locked --package evictscope`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::workspace;

use crate::setup::{self, For};

/// Installs what is missing and builds the release binary, with cargo's own progress on the terminal. Returns its path.
pub fn run() -> Result<PathBuf> {
    naming(&[])
}

/// Does the same with these variables, which tell the agent what it is built from.
pub fn naming(variables: &[(&str, String)]) -> Result<PathBuf> {
    setup::run(For::Build)?;
    let status = workspace::cargo()
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .args(["build", "--release", "--locked", "--package", "evictscope"])
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "`cargo build --release --locked --package evictscope` failed");
    workspace::agent_binary()
}
