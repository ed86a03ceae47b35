//! evictscope: Prometheus metrics about evictions of the redis-server processes that already run on
//! a host. `docs/ARCHITECTURE.md` says how the parts fit together.

#![forbid(unsafe_code)]
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod cli;
mod client;
mod clock;
mod keys;
mod live;
mod planning;
mod profile;
mod terminal;
mod text;
mod trace;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    evictscope_probes::take_back_signals();
    cli::run().unwrap_or_else(|error| {
        terminal::note(&format!("evictscope: {error:#}"));
        ExitCode::FAILURE
    })
}
