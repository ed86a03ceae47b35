//! `cargo xtask lab SCENARIO`: the eviction-burst cycle and expiry that falls behind, made to happen and recorded.

use anyhow::Result;
use evictscope_lab::Arguments;
use evictscope_testkit::{agent::Program, workspace};

use crate::build;

/// Builds the agent where it is to watch, and runs the scenario.
pub fn run(arguments: &Arguments) -> Result<()> {
    if !arguments.agent {
        return evictscope_lab::run(arguments, None);
    }
    build::run()?;
    let agent = Program::Built(workspace::agent_binary()?);
    evictscope_lab::run(arguments, Some(agent))
}
