//! `evictscope keeper` holds the probes of the agent that started it. It is not for users, so `--help` does not list
//! it.

use std::process::ExitCode;

use anyhow::Context as _;

/// Holds probes until the agent has ended.
///
/// # Errors
///
/// Fails if it was started by hand.
pub fn run() -> anyhow::Result<ExitCode> {
    evictscope_probes::keep().context("only evictscope itself starts its keeper")?;
    Ok(ExitCode::SUCCESS)
}
