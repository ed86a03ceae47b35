//! `cargo xtask bench scrape`: what a scrape of the agent costs with 1, 16 and 64 servers.
//!
//! The agent works all the time, so its CPU time in a window with scrapes is compared with that in a
//! window without, in turn within every round. It is in probe mode every-call, in which there is every
//! series that there can be, and which does not change meanwhile.

use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tempfile::TempDir;

use super::{
    exporters::{self, Exporter, RedisExporter},
    log::Log,
    page::Page,
    scrape_report::{Fleet, Measurement, print_heading, print_target},
};
use crate::{
    agent::Agent,
    build, process,
    redis::{Server, measure_sets},
    schedstat, workspace,
};

/// How many servers there are, one after the other.
const FLEETS: [usize; 3] = [1, 16, 64];
/// How long each window is.
const WINDOW: Duration = Duration::from_secs(2);
/// From the beginning of one scrape to that of the next, where that was enough.
const PACE: Duration = Duration::from_millis(100);
/// The limit of each server, and the load that exceeds it: the 20,000 values are 2 MB, and the server
/// and its keys come on top.
const MAXMEMORY: &str = "2mb";
const KEYS: u32 = 100_000;
const SETS: u32 = 20_000;
/// How long the agent may take to attach to all servers. Each takes it up to a second.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(90);
/// After the load, until all bursts have been finished: a burst ends after a second without an
/// eviction, a reclaim after two without falling memory.
const SETTLE: Duration = Duration::from_secs(5);

/// How long to measure.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which has 2 s without scrapes, 2 s of scrapes of the agent, and 2 s of redis_exporter
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Measures and prints.
pub fn run(arguments: Arguments) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the probes need root: run `cargo xtask bench scrape` as root"
    );
    build::run()?;
    exporters::provide()?;
    // A Ctrl-C ends the measurement; what is run here then ends everything else in order.
    let interrupted = process::catch_ctrl_c()?;
    let go_on = || {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };

    let program = OwnName::new()?;
    let version = process::answer_of(Command::new(&program.path).arg("--version"))?;
    println!("server   {}", version.trim());
    let mut log = Log::create("bench-scrape.jsonl", &json!({ "version": version.trim() }))?;
    // Dropped in the reverse order: nobody watches when the servers end.
    let mut servers: Vec<Server> = Vec::new();
    let redis_exporter = RedisExporter::start()?;
    let mut agent = Agent::start(
        &workspace::agent_binary()?,
        &[
            "--probe-mode",
            "every-call",
            "--process-match",
            &program.pattern(),
        ],
    )?;
    let watched = Exporter::agent(agent.pid(), agent.metrics_url());

    let mut fleets = Vec::new();
    for count in FLEETS {
        let present = servers.len();
        while servers.len() < count {
            go_on()?;
            servers.push(Server::start_program(&program.path, MAXMEMORY)?);
        }
        wait_until_watched(&mut agent, &watched, count, go_on)?;
        for server in &servers[present..] {
            go_on()?;
            measure_sets(server, KEYS, SETS)?;
        }
        thread::sleep(SETTLE);
        let exporter = Exporter::redis_exporter(&redis_exporter, &servers);
        let mut fleet = Fleet::new(count, &watched.scrape()?, &exporter.scrape()?)?;
        fleet.print_series();
        print_heading();
        for round in 0..arguments.rounds {
            go_on()?;
            let measurement = measure(&watched, &exporter, round % 2 == 1)?;
            log.line(&measurement.json(count, round))?;
            measurement.print(round);
            fleet.measurements.push(measurement);
        }
        fleet.print();
        fleets.push(fleet);
    }
    print_target(&fleets);
    println!("\nall measurements: {}", log.path().display());
    Ok(())
}

/// A name for the servers that no other process of this host has, so that the agent watches no other
/// server.
struct OwnName {
    path: PathBuf,
    name: String,
    _directory: TempDir,
}

impl OwnName {
    fn new() -> Result<Self> {
        let server = which::which("redis-server").context("no redis-server on PATH")?;
        let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
        // Not longer than the kernel's name for a process.
        let name = format!("bench{}", std::process::id());
        let path = directory.path().join(&name);
        link(&server, &path)?;
        Ok(Self {
            path,
            name,
            _directory: directory,
        })
    }

    /// For `--process-match`.
    fn pattern(&self) -> String {
        format!("^{}$", self.name)
    }
}

fn link(original: &Path, link: &Path) -> Result<()> {
    symlink(original, link).with_context(|| format!("cannot make {}", link.display()))
}

/// Waits until there are series about so many servers.
fn wait_until_watched(
    agent: &mut Agent,
    watched: &Exporter,
    count: usize,
    go_on: impl Fn() -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    let mut seen = 0;
    while begun.elapsed() < ATTACH_TIMEOUT {
        go_on()?;
        agent.must_be_alive()?;
        // At first it may not listen yet.
        if let Ok(answer) = watched.scrape() {
            seen = Page::parse(answer.text()?).servers();
        }
        if seen == count {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    anyhow::bail!("evictscope watches {seen} of {count} servers after {ATTACH_TIMEOUT:?}")
}

/// One round.
fn measure(agent: &Exporter, redis_exporter: &Exporter, reverse: bool) -> Result<Measurement> {
    let mut windows = [None, None, None];
    let mut order = [(0, None), (1, Some(agent)), (2, Some(redis_exporter))];
    if reverse {
        order.reverse();
    }
    for (index, scraped) in order {
        windows[index] = Some(Window::measure([agent.pid, redis_exporter.pid], scraped)?);
    }
    let [Some(quiet), Some(ours), Some(theirs)] = windows else {
        anyhow::bail!("a window is missing");
    };
    Ok(Measurement {
        agent_busy: quiet.busy[0],
        agent_cpu: ours.cpu_of_a_scrape(0, &quiet),
        agent_seconds: ours.seconds,
        exporter_cpu: theirs.cpu_of_a_scrape(1, &quiet),
        exporter_seconds: theirs.seconds,
    })
}

/// What happened in a window.
struct Window {
    /// How long it was, in seconds.
    length: f64,
    /// CPU time of the agent and of redis_exporter, by the length.
    busy: [f64; 2],
    /// How long each scrape took, in seconds.
    seconds: Vec<f64>,
}

impl Window {
    fn measure(pids: [u32; 2], scraped: Option<&Exporter>) -> Result<Self> {
        let cpu_now = || -> Result<[Duration; 2]> {
            let [ours, theirs] = pids.map(schedstat::running_of_process);
            Ok([ours?, theirs?])
        };
        let before = cpu_now()?;
        let begun = Instant::now();
        let mut seconds = Vec::new();
        let mut next = begun;
        while begun.elapsed() < WINDOW {
            if let Some(exporter) = scraped {
                seconds.push(exporter.scrape()?.seconds);
            }
            next = (next + PACE).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        let length = begun.elapsed().as_secs_f64();
        let after = cpu_now()?;
        let busy = |index: usize| after[index].saturating_sub(before[index]).as_secs_f64() / length;
        Ok(Self {
            length,
            busy: [busy(0), busy(1)],
            seconds,
        })
    }

    /// CPU time, in seconds, that a scrape took the process at `index`, beyond what it took in `quiet`.
    fn cpu_of_a_scrape(&self, index: usize, quiet: &Self) -> f64 {
        let more = self.busy[index] - quiet.busy[index];
        more * self.length / self.seconds.len() as f64
    }
}
