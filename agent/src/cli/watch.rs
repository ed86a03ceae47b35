//! `evictscope watch` shows the servers of a running agent, live in the terminal.

use std::process::ExitCode;

use crate::live::{self, Access};

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
pub struct Arguments {
    #[command(flatten)]
    access: Access,
    /// Print one plain table, of one second, and end
    #[arg(long)]
    once: bool,
}

/// Shows the servers until the user quits, or prints them once.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.once {
        live::print_once(&arguments.access)?
    } else {
        live::show(&arguments.access)?
    }
    Ok(ExitCode::SUCCESS)
}
