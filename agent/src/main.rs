//! evictscope: Prometheus metrics about evictions of the redis-server processes that already run on
//! a host. `docs/ARCHITECTURE.md` says how the parts fit together.

mod cli;
mod compare;
mod explain;
mod export;
mod host;
mod live;
mod probes;
mod profile;
mod records;
mod telemetry;
mod trace;
mod version;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run().unwrap_or_else(|error| {
        eprintln!("evictscope: {error:#}");
        ExitCode::FAILURE
    })
}
