//! Shows the servers of a running agent, live in the terminal, as an HTTP client without privileges.

mod columns;
mod drawing;
mod rates;
mod screen;
mod server;
mod servers;

use std::thread::sleep;
use std::time::Instant;

use anyhow::ensure;
use ratatui::crossterm::terminal;

use self::rates::Readings;
use self::screen::INTERVAL;
use crate::client::{Access, AgentClient};
use crate::terminal as output;
use crate::text::wrapped;

/// Shows the servers until the user quits.
pub fn show(access: &Access) -> anyhow::Result<()> {
    let agent = AgentClient::at(access)?;
    ensure!(output::is_terminal(), "stdout is not a terminal: use --once to get a plain table");
    // Read before the screen is taken, so that an error message stays readable.
    screen::run(&agent, agent.reading()?)
}

/// Prints one plain table, with the rates of one second: in a terminal the columns that fit, elsewhere all of them.
pub fn print_once(access: &Access) -> anyhow::Result<()> {
    let agent = AgentClient::at(access)?;
    let begun = Instant::now();
    let mut readings = Readings::new(agent.reading()?);
    sleep(INTERVAL);
    readings.add(agent.reading()?, begun.elapsed().as_secs_f64());
    let rows = servers::rows(&readings);
    let size = terminal::size().ok().filter(|_| output::is_terminal());
    let width = size.map_or(usize::MAX, |(width, _)| usize::from(width));
    let columns = servers::columns(&rows);
    let mut text = if rows.is_empty() {
        "No server is watched at present.\n".to_owned()
    } else {
        columns::plain(columns::fitting(&columns, width), &rows)
    };
    // An older agent does not list them.
    for note in servers::notes(&readings.now, &agent.unwatched().unwrap_or_default()) {
        text.extend(wrapped(&note, width).iter().flat_map(|line| [line.as_str(), "\n"]));
    }
    Ok(output::print(&text)?)
}
