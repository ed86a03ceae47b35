//! Starts the daemon's threads, and ends them at a signal.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use evictscope_host::{Scanner, Scheduling};
use evictscope_probes::share_heaps;
use evictscope_records::{self as records, Keeper, NoProfile, Store};
use evictscope_web::{Web, WebConfig};
use rustix::thread::gettid;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use super::endings::Endings;
use super::loaded::Loaded;
use super::lookout::Lookout;
use super::pace::{Pace, Stop};
use super::server::Watch;
use super::watcher::Watcher;
use super::{Settings, service};
use crate::planning::Planner;
use crate::profile::Profiler;
use crate::terminal::Log;

/// How long to wait at the end for the thread that looks for servers. It holds no probes.
const PATIENCE: Duration = Duration::from_secs(1);
const HANGS: &str = "the loop that looks for servers hangs; please report this";

/// Watches and serves until SIGTERM or SIGINT. Fails if the port is taken, or the kernel does not let this process
/// attach probes.
pub fn run(settings: Settings, web_config: Option<WebConfig>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Log).with_ansi(false).init();
    share_heaps();

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the asynchronous runtime")?;
    let listener = runtime.block_on(evictscope_web::bind(settings.listen))?;
    let Loaded { sockets, probes, costs, sampler, kept } = Loaded::load(settings.peers)?;
    let sockets = sockets.inspect_err(|error| {
        tracing::warn!("how long clients wait cannot be seen, nor when they are stalled: {error}");
    });
    if let Some(why) = sockets.as_ref().ok().and_then(|sockets| sockets.no_peers.as_ref()) {
        tracing::warn!("whose requests wait, and who does not read answers, cannot be seen: {why}");
    }
    tracing::debug!(?costs, "measured what a probe hit costs");
    tracing::debug!(?kept, "gave up the other capabilities");

    let profiler = Profiler::start(sampler, settings.debug_dirs.clone());
    if let Err(NoProfile(why)) = &profiler {
        tracing::warn!("no profiles are taken: {why}");
    }
    let keeper = keeper(&settings.state_dir, settings.keep_records);
    let shared = evictscope_web::Shared::new(keeper.clone());
    let stop = Stop::default();
    let watch = Watch {
        probes: probes.clone(),
        planner: Planner::new(settings.debug_dirs),
        mode: settings.probe_mode,
        costs,
        budget: settings.overhead_budget,
        stall_threshold: settings.stall_threshold,
        sockets: sockets.ok(),
        profiler,
        endings: Endings::default(),
        lookout: Lookout::start(stop.clone()).context("cannot start the thread that looks at calm servers")?,
        pace: Pace::default(),
        shared: shared.clone(),
        stop: stop.clone(),
    };
    let watcher = Watcher::new(watch, Scanner::new(settings.process_match).excluding(settings.exclusions));
    let (failed, has_failed) = oneshot::channel();
    let (tell, times) = oneshot::channel();
    // It has its own thread because looking at processes blocks.
    let watching = std::thread::Builder::new()
        .name("watcher".to_owned())
        .spawn(move || {
            // Nobody waits for either if the agent is about to end.
            let _ = tell.send(Scheduling::of(gettid().as_raw_nonzero().get().cast_unsigned()));
            let watched = watcher.watch();
            let _ = failed.send(());
            watched
        })
        .context("cannot start the watching thread")?;

    let address = listener.local_addr().context("the listening socket is gone")?;
    let scheme = if web_config.as_ref().is_some_and(WebConfig::has_tls) { "https" } else { "http" };
    tracing::info!("serving {scheme}://{address}/metrics");
    if address.ip().is_loopback() && evictscope_host::has_own_network() == Some(true) {
        tracing::warn!(
            "nobody outside of this container reaches {address}, as it has a network namespace of its own: add \
             --network=host (podman, Docker) or hostNetwork: true (Kubernetes), or listen on all its addresses \
             (--listen=0.0.0.0:{port}) and publish the port",
            port = address.port()
        );
    }
    let hangs = Rc::new(Cell::new(false));
    let has_hung = hangs.clone();
    let served = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle SIGINT")?;
        let (stop, times) = (stop.clone(), times.await.ok().flatten());
        let hung = service::hung(shared.clone(), times);
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: detaching"),
                _ = interrupt.recv() => tracing::info!("SIGINT: detaching"),
                _ = has_failed => tracing::error!("a thread has failed: detaching"),
                () = hung => {
                    hangs.set(true);
                    tracing::error!("the loop that looks for servers hangs: detaching");
                }
            }
            stop.set();
            service::stopping().await;
        };
        tokio::spawn(service::report(shared.clone()));
        let web = web_config.as_ref().map(WebConfig::web).unwrap_or_else(|| Web::open(settings.host_names));
        if let Some(web_config) = web_config {
            tokio::spawn(web_config.follow());
        }
        evictscope_web::serve(listener, shared, web, settings.open_requests, shutdown).await;
        anyhow::Ok(())
    });
    // Does not wait for a thread that still reports to a service manager that does not listen.
    runtime.shutdown_background();
    // However serving ended, no probe stays.
    stop.set();
    let finished = probes.finish();
    // By now the threads of all servers have handed over what they had.
    if let Ok(keeper) = keeper {
        keeper.finish();
    }
    let begun = Instant::now();
    while !watching.is_finished() {
        ensure!(begun.elapsed() <= PATIENCE, HANGS);
        std::thread::sleep(Duration::from_millis(1));
    }
    // It may go on by now, but for too long nobody was watched.
    anyhow::ensure!(!has_hung.get(), HANGS);
    match watching.join() {
        Ok(watched) => watched.and(served).and(finished.map_err(Into::into)),
        Err(_) => anyhow::bail!("the thread that looks for servers panicked; please report this"),
    }
}

/// Starts to keep records, or says why none are kept: everything else works without them.
fn keeper(directory: &Path, most: u64) -> Result<Keeper, String> {
    if most == 0 {
        return Err("records are not kept: --keep-records is 0".to_owned());
    }
    let limits = records::StoreLimits { records: records::StoreLimits::RECORDS, bytes: most };
    let keeper = Store::open(directory, limits)
        .map_err(|error| error.to_string())
        .and_then(|store| Keeper::start(store).map_err(|error| error.to_string()));
    keeper.map_err(|error| {
        tracing::warn!("no records are kept: {error}");
        format!("no records are kept: {error}")
    })
}
