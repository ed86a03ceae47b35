//! Starts the daemon's threads, and ends them at a signal.

use std::io::IsTerminal as _;
use std::sync::mpsc;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::attach::Attacher;
use super::plans::Plans;
use super::privileges;
use super::service::{self, Progress};
use super::settings::Settings;
use super::watcher::Watcher;
use crate::export::{self, Web, WebConfig};
use crate::host::Scanner;
use crate::probes::Probes;

/// Watches and serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// Fails where the port is taken, or the kernel does not let this process attach probes.
pub fn run(settings: Settings, web_config: Option<WebConfig>) -> anyhow::Result<()> {
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
    let listener = runtime.block_on(export::bind(settings.listen))?;
    let (probes, costs) = Probes::load_and_calibrate()?;
    tracing::debug!(?costs, "measured what a probe hit costs");

    // Binding a port below 1024 and loading the programs take more privileges than watching.
    let kept = privileges::drop_unneeded().context("cannot give up capabilities")?;
    tracing::debug!(?kept, "gave up the other capabilities");

    let shared = export::Shared::default();
    let progress = Progress::default();
    let (stop, stopped) = mpsc::channel();
    let attacher = Attacher {
        plans: Plans::new(settings.debug_dirs),
        costs,
        mode: settings.probe_mode,
        budget: settings.overhead_budget,
    };
    let scanner = Scanner::new(settings.process_match);
    let watcher = Watcher::new(probes, attacher, scanner, shared.clone(), progress.clone());
    // A thread of its own, as attaching and detaching block.
    let watching = std::thread::Builder::new()
        .name("watcher".to_owned())
        .spawn(move || watcher.watch(&stopped))
        .context("cannot start the watching thread")?;

    let address = listener
        .local_addr()
        .context("the listening socket is gone")?;
    let scheme = match web_config.as_ref().is_some_and(WebConfig::has_tls) {
        true => "https",
        false => "http",
    };
    tracing::info!("serving {scheme}://{address}/metrics");
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: detaching"),
                _ = interrupt.recv() => tracing::info!("SIGINT: detaching"),
            }
            service::stopping();
            // The watcher may have ended already; then there is nobody to tell.
            let _ = stop.send(());
        };
        tokio::spawn(service::report(shared.clone(), progress));
        let web = web_config.as_ref().map_or_else(Web::open, WebConfig::web);
        if let Some(web_config) = web_config {
            tokio::spawn(web_config.follow());
        }
        export::serve(listener, shared, web, shutdown)
            .await
            .context("cannot serve HTTP")
    });
    if watching.join().is_err() {
        anyhow::bail!("the watching thread panicked; please report this");
    }
    served
}
