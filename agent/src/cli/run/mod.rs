//! `evictscope run`: the daemon.

mod burst_log;
mod plans;
mod watcher;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::Context as _;
use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::Selection;
use super::debug_files::DebugFiles;
use crate::export;
use crate::host::Scanner;
use crate::telemetry::OverheadBudget;
use plans::Plans;
use watcher::Watcher;

/// Run the daemon: find servers, attach, and serve /metrics
///
/// Messages go to stderr; RUST_LOG=debug (or =evictscope=debug) shows more.
#[derive(clap::Args)]
pub struct Arguments {
    /// Address and port to serve HTTP on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9739", value_parser = parse_address)]
    listen: SocketAddr,
    /// Which eviction calls to probe
    #[arg(long, value_enum, default_value_t = RequestedMode::Auto)]
    probe_mode: RequestedMode,
    /// In probe mode auto: the share of a server's main thread up to which every call is probed,
    /// such as 1% or 0.01. Probes on evicting calls stay whatever they cost
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    overhead_budget: OverheadBudget,
    #[command(flatten)]
    selection: Selection,
    #[command(flatten)]
    debug_files: DebugFiles,
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| {
        "not an IP address with a port: write 127.0.0.1:9739, or 0.0.0.0:9739 to be reached from other hosts"
    })
}

/// The probe mode as the user asks for it.
#[derive(Clone, Copy, ValueEnum)]
enum RequestedMode {
    /// Each server for itself: evicting-only at first and under load, every-call while that costs
    /// less than --overhead-budget
    Auto,
    /// Count and time every call, no-op or not: costs every command that a server executes about a
    /// microsecond
    EveryCall,
    /// Only calls that evict: a server below its limit pays nothing
    EvictingOnly,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
///
/// Where the port is taken, or the kernel does not let this process attach probes.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let listener = runtime.block_on(export::bind(arguments.listen))?;
    let (probes, costs) = super::load_probes()?;
    tracing::debug!(?costs, "measured what a probe hit costs");

    let shared = export::Shared::default();
    let (stop, stopped) = mpsc::channel();
    let scanner = Scanner::new(arguments.selection.process_match);
    let watcher = Watcher::new(
        probes,
        costs,
        scanner,
        arguments.probe_mode,
        arguments.overhead_budget,
        Plans::new(arguments.debug_files),
        shared.clone(),
    );
    // A thread of its own, as attaching and detaching block.
    let watching = std::thread::Builder::new()
        .name("watcher".to_owned())
        .spawn(move || watcher.watch(&stopped))
        .context("cannot start the watching thread")?;

    let address = listener
        .local_addr()
        .context("the listening socket is gone")?;
    tracing::info!("serving http://{address}/metrics");
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: detaching"),
                _ = interrupt.recv() => tracing::info!("SIGINT: detaching"),
            }
            // The watcher may have ended already; then nobody is left to tell.
            let _ = stop.send(());
        };
        export::serve(listener, shared, shutdown)
            .await
            .context("cannot serve HTTP")
    });
    if watching.join().is_err() {
        anyhow::bail!("the watching thread panicked; please report this");
    }
    served.map(|()| ExitCode::SUCCESS)
}
