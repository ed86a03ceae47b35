//! `evictscope watch`: what a running agent knows, live in the terminal.

mod agent;
mod rates;
mod reading;
mod screen;
mod text;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;

use agent::{Access, Agent};
use rates::Rates;

/// How often the agent is read.
const INTERVAL: Duration = Duration::from_secs(1);

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

/// Shows the servers until the user quits.
///
/// # Errors
///
/// Where no agent answers, a file cannot be read, or stdout is no terminal.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let agent = Agent::at(&arguments.access)?;
    if arguments.once {
        return print_once(&agent);
    }
    ensure!(
        std::io::stdout().is_terminal(),
        "stdout is no terminal: use --once to get a plain table"
    );
    // Before the screen is taken, so that the message stays to be read.
    let first = agent.reading()?;
    screen::run(&agent, first)?;
    Ok(ExitCode::SUCCESS)
}

fn print_once(agent: &Agent) -> anyhow::Result<ExitCode> {
    let begun = Instant::now();
    let before = agent.reading()?;
    sleep(INTERVAL);
    let now = agent.reading()?;
    let seconds = begun.elapsed().as_secs_f64();
    let rows: Vec<_> = now
        .servers
        .iter()
        .map(|(server, reading)| {
            let before = before.servers.get(server);
            let rates = before.map(|before| Rates::between(before, reading, seconds));
            text::cells(server, reading, rates.as_ref())
        })
        .collect();
    std::io::stdout().write_all(text::table(&rows).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
