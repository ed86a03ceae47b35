//! `evictscope generate` writes manual pages and completions for the package. It is not for users, so
//! `--help` does not list it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap_complete::Shell;

/// Write the manual pages and the completions of bash, zsh and fish
#[derive(clap::Args)]
pub struct Arguments {
    /// Directory to write them to
    directory: PathBuf,
}

/// Writes all of them for `command`.
pub fn run(arguments: &Arguments, command: clap::Command) -> anyhow::Result<ExitCode> {
    let directory = &arguments.directory;
    let what = || format!("cannot write to {}", directory.display());
    clap_mangen::generate_to(command.clone(), directory).with_context(what)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command.clone(), "evictscope", directory).with_context(what)?;
    }
    Ok(ExitCode::SUCCESS)
}
