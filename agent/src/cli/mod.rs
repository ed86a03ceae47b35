//! The command line: each subcommand has a file that turns its arguments into a call. Exit codes are
//! 0 for success, 1 for failure and 2 for wrong usage.

mod check;
mod compare;
mod inspect;
mod keys;
mod profile;
mod report;
mod run;
mod selftest;
mod state_dir;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use evictscope_web::version;

use crate::keys::KeysArguments;
use crate::{live, planning, trace};

/// Eviction metrics of the redis-server processes that already run on this host
///
/// Attaches BPF programs to them (no rebuild, restart, password or connection) and exports
/// Prometheus metrics: how long each eviction call takes, how often it is made, what the eviction
/// goal came to, and how much memory client buffers hold.
#[derive(Parser)]
#[command(version = version::LONG.as_str())]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Inspect(inspect::Arguments),
    Check(check::Arguments),
    Watch(live::WatchArguments),
    Profile(profile::Arguments),
    Trace(trace::TraceArguments),
    Keys(KeysArguments),
    Report(report::Arguments),
    Compare(compare::Arguments),
    Selftest(selftest::Arguments),
    /// Write the manual pages and the completions of bash, zsh and fish
    #[command(hide = true)]
    Generate {
        /// Directory to write them to
        directory: PathBuf,
    },
    #[command(hide = true)]
    Tied(selftest::TiedArguments),
    /// Hold the probes of the agent that has started this process
    #[command(hide = true)]
    Keeper,
    #[command(hide = true)]
    Planner(planning::PlannerArguments),
}

/// Parses the arguments and runs the subcommand. A usage error ends the process with exit code 2. Fails with the reason
/// and advice if the subcommand fails.
pub fn run() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Watch(arguments) => live::answer(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Trace(arguments) => trace::answer(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Keys(arguments) => keys::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Selftest(arguments) => selftest::run(&arguments),
        Command::Tied(arguments) => selftest::become_tied(arguments),
        Command::Keeper => {
            evictscope_probes::keep().context("only evictscope itself starts its keeper")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Planner(question) => planning::answer(&question),
        Command::Generate { directory } => {
            generate(&directory).with_context(|| format!("cannot write to {}", directory.display()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes manual pages and completions for the package.
fn generate(directory: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Arguments::command(), directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Arguments::command(), "evictscope", directory)?;
    }
    Ok(())
}
