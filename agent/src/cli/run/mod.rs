//! `evictscope run`: the daemon.

mod burst_log;
mod config_file;
mod options;
mod plans;
mod privileges;
mod service;
mod watcher;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::export::{self, Web, WebConfig};
use crate::host::Scanner;
use options::{Options, Settings};
use plans::Plans;
use service::Progress;
use watcher::Watcher;

/// Run the daemon: find servers, attach, and serve /metrics
///
/// Messages go to stderr; RUST_LOG=debug (or =evictscope=debug) shows more.
#[derive(clap::Args)]
pub struct Arguments {
    /// Configuration file, in TOML: the same options by the same names, without the dashes in
    /// front. Those given here win [default: /etc/evictscope/config.toml, where it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say whether the configuration is right, and what is wrong with it (exit code 2); start
    /// nothing
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    options: Options,
}

/// The exit code of a wrong configuration: that of a wrong command line, so that a service manager
/// can tell it from a failure that may pass.
const WRONG_CONFIGURATION: u8 = 2;

/// Runs until SIGTERM or SIGINT, or just checks the configuration.
///
/// # Errors
///
/// Where the port is taken, or the kernel does not let this process attach probes.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let configuration = match configuration(arguments.options, arguments.config.as_deref()) {
        Ok(configuration) => configuration,
        Err(error) => {
            eprintln!("evictscope: {error:#}");
            return Ok(ExitCode::from(WRONG_CONFIGURATION));
        }
    };
    if arguments.check_config {
        configuration.confirm();
        return Ok(ExitCode::SUCCESS);
    }
    serve(configuration.settings, configuration.web)
}

/// A configuration that is right.
struct Configuration {
    settings: Settings,
    /// The file that it comes from, where there is one.
    file: Option<PathBuf>,
    web: Option<WebConfig>,
}

impl Configuration {
    /// Says what was read.
    fn confirm(&self) {
        match &self.file {
            Some(path) => println!("{} is right", path.display()),
            None => println!("there is no configuration file: the defaults are used"),
        }
        if let Some(path) = &self.settings.web_config {
            println!("{} is right", path.display());
        }
    }
}

/// Reads all that the daemon is configured by.
fn configuration(given: Options, path: Option<&Path>) -> anyhow::Result<Configuration> {
    let (in_file, file) = config_file::load(path)?;
    let settings = given.or(in_file).settings()?;
    let web = settings.web_config.as_deref().map(WebConfig::load);
    Ok(Configuration {
        settings,
        file,
        web: web.transpose()?,
    })
}

fn serve(settings: Settings, web_config: Option<WebConfig>) -> anyhow::Result<ExitCode> {
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
    let (probes, costs) = super::load_probes()?;
    tracing::debug!(?costs, "measured what a probe hit costs");

    // Ports below 1024 and the programs are what took more than watching does.
    let kept = privileges::drop_unneeded().context("cannot give up capabilities")?;
    tracing::debug!(?kept, "gave up the other capabilities");

    let shared = export::Shared::default();
    let progress = Progress::default();
    let (stop, stopped) = mpsc::channel();
    let scanner = Scanner::new(settings.process_match);
    let watcher = Watcher::new(
        probes,
        costs,
        scanner,
        settings.probe_mode,
        settings.overhead_budget,
        Plans::new(settings.debug_files),
        shared.clone(),
        progress.clone(),
    );
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
            // The watcher may have ended already; then nobody is left to tell.
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
    served.map(|()| ExitCode::SUCCESS)
}
