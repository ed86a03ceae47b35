//! `evictscope watch` shows the servers of a running agent, live in the terminal.

use std::process::ExitCode;

use crate::live::{self, Access};

/// Watch the servers of a running agent, live in the terminal
///
/// One row for each server; enter opens one, with its histograms and bursts. Needs no privilege, and
/// the agent may run on another host.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    access: Access,
    /// Print one plain table, of one second, and end
    #[arg(long)]
    once: bool,
}

/// Shows the servers until the user quits, or prints them once.
///
/// # Errors
///
/// Fails where no agent answers, a file cannot be read, or stdout is not a terminal.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match arguments.once {
        true => live::print_once(&arguments.access)?,
        false => live::show(&arguments.access)?,
    }
    Ok(ExitCode::SUCCESS)
}
