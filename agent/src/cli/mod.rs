//! The command line: one file per subcommand. Exit codes: 0 ok, 1 failure, 2 usage.

mod check;
mod cost;
mod debug_files;
mod generate;
mod inspect;
mod run;
mod watch;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::host::{DEFAULT_PATTERN, Matcher, MatcherError, memory};
use crate::probes::Probes;
use crate::telemetry::HitCosts;
use evictscope_plan::Image;

/// Eviction metrics of the redis-server processes that already run on this host
///
/// Attaches BPF programs to them (no rebuild, restart, password or connection) and exports
/// Prometheus metrics: how long each eviction call takes, how often it is made, what the eviction
/// goal came to, and how much memory client buffers hold.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Arguments),
    Inspect(inspect::Arguments),
    Check(check::Arguments),
    Watch(watch::Arguments),
    #[command(hide = true)]
    Generate(generate::Arguments),
}

/// Which processes count as servers.
#[derive(clap::Args)]
struct Selection {
    /// Regular expression: a process whose command name, executable's name or argument 0 it
    /// matches is a server (sentinels and forked children never are)
    #[arg(long, value_name = "REGEX", default_value = DEFAULT_PATTERN, value_parser = parse_pattern)]
    process_match: Matcher,
}

fn parse_pattern(pattern: &str) -> Result<Matcher, MatcherError> {
    Matcher::new(pattern)
}

/// Parses the arguments and runs the subcommand. A usage error ends the process with exit code 2.
///
/// # Errors
///
/// What made the subcommand fail, with what to do next.
pub fn run() -> anyhow::Result<ExitCode> {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Watch(arguments) => watch::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments),
    }
}

/// Loads the BPF programs and measures what a hit costs on functions of this very program, so that
/// what the kernel does not allow is said at once and not at the first server.
///
/// # Errors
///
/// What the kernel does not allow, and what to do about it.
fn load_probes() -> anyhow::Result<(Probes, HitCosts)> {
    let mut probes = Probes::load()?;
    // However large it is: an unoptimised build is larger than what is read of others.
    let own = std::fs::read("/proc/self/exe").context("cannot read evictscope's own executable")?;
    let own = Image::parse(&own).context("cannot read evictscope's own executable")?;
    let load_bias = memory::load_bias(std::process::id(), own.entry())?;
    let costs = probes.calibrate(|address| own.file_offset(address.checked_sub(load_bias)?))?;
    Ok((probes, costs))
}
