//! Shows the servers of a running agent, live in the terminal, as a client of its HTTP without
//! privileges.

mod agent;
mod rates;
mod reading;
mod screen;
mod text;

use std::io::{IsTerminal as _, Write as _};
use std::thread::sleep;
use std::time::Instant;

use anyhow::ensure;

pub use agent::Access;
use agent::Agent;
use rates::Rates;
use screen::INTERVAL;

/// Shows the servers until the user quits.
///
/// # Errors
///
/// Fails where no agent answers, a file cannot be read, or stdout is not a terminal.
pub fn show(access: &Access) -> anyhow::Result<()> {
    let agent = Agent::at(access)?;
    ensure!(
        std::io::stdout().is_terminal(),
        "stdout is no terminal: use --once to get a plain table"
    );
    // Before the screen is taken, so that the message stays readable.
    let first = agent.reading()?;
    screen::run(&agent, first)
}

/// Prints one plain table, with the rates of one second.
///
/// # Errors
///
/// Fails where no agent answers, a file cannot be read, or stdout is closed.
pub fn print_once(access: &Access) -> anyhow::Result<()> {
    let agent = Agent::at(access)?;
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
    Ok(())
}
