//! `evictscope watch`: shows the servers of a running agent, live in the terminal, as a client without privileges.

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

/// Watch the servers of a running agent, live in the terminal
///
/// One row for each server, every second. What clients felt comes first: WAIT>1S and >0.1S, how many requests waited
/// for longer than that, and STALLED, for how long clients were stalled, both since the agent found the server;
/// WAITING, how many clients wait now, and of how many; LONGEST, the longest wait of the last 5 minutes. Then its
/// phase; evicted keys a second; memory as a share of its limit; commands/s; LONGEST-CALL, its longest evicting call of
/// the last 5 minutes; BUFFERS, the memory of client buffers; EVICTING, the share of time in evicting calls. A narrow
/// terminal shows the first of these. In red: waits of a second, stalls and failing evictions, as they happen. Enter
/// opens a server, with its last minutes, histograms and bursts. Below the table is why a server is not watched.
///
/// Needs no privilege, and the agent may run on another host. NO_COLOR=1 turns colours off.
#[derive(clap::Args)]
pub struct WatchArguments {
    #[command(flatten)]
    access: Access,
    /// Print one plain table, of one second, and end
    #[arg(long)]
    once: bool,
}

/// Shows the servers until the user quits, or prints them once.
pub fn answer(arguments: &WatchArguments) -> anyhow::Result<()> {
    let agent = AgentClient::at(&arguments.access)?;
    if arguments.once {
        return print_once(&agent);
    }
    ensure!(output::is_terminal(), "stdout is not a terminal: use --once to get a plain table");
    // Read before the screen is taken, so that an error message stays readable.
    screen::run(&agent, agent.reading()?)
}

/// Prints one plain table, with the rates of one second: in a terminal the columns that fit, elsewhere all of them.
fn print_once(agent: &AgentClient) -> anyhow::Result<()> {
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
