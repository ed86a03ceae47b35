//! evictscope: Prometheus metrics about evictions of the redis-server processes that already run on
//! a host. `docs/ARCHITECTURE.md` says how the parts fit together.

#![forbid(unsafe_code)]

mod cli;
mod keys;
mod live;
mod planning;
mod process;
mod profile;
mod text;
mod trace;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|error| {
        eprintln!("evictscope: {error:#}");
        ExitCode::FAILURE
    })
}
