//! `cargo xtask bench scrape`: what a scrape of the agent costs with 1, 16 and 64 servers.
//!
//! The agent works all the time. Each round therefore compares its CPU time in a window with scrapes to that in
//! a window without. It is in probe mode every-call, which exports every series and does not change.

use std::{
    path::Path,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use evictscope_testkit::{
    agent::{Agent, Program},
    json_lines::JsonLines,
    port::free_port,
    process,
    redis::Redis,
    schedstat,
};
use serde_json::json;

use crate::{
    exporters::{Exporter, RedisExporter},
    own_servers::OwnServers,
    scrape_report::{Fleet, Measurement, print_heading, print_target},
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
/// How long the agent may take to finish all bursts after the load. A burst ends after a second without an
/// eviction, a reclaim after two seconds without falling memory.
const SETTLE: Duration = Duration::from_secs(5);

/// How long to measure.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which has 2 s without scrapes, 2 s of scrapes of the agent, and 2 s of redis_exporter
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

/// Measures and prints.
pub fn run(arguments: Arguments, agent: &Path) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let go_on = || {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };

    let program = OwnServers::link()?;
    let version = process::answer_of(program.command().arg("--version"))?;
    println!("server   {}", version.trim());
    let mut log = JsonLines::create("bench-scrape.jsonl")?;
    log.add(&json!({ "version": version.trim() }))?;
    // Dropped after the agent, so that nobody watches the servers end.
    let mut servers: Vec<Redis> = Vec::new();
    let redis_exporter = RedisExporter::start()?;
    let agent = Agent::start_command(
        Program::Built(agent.to_owned()).run(),
        free_port()?,
        &[
            "--probe-mode",
            "every-call",
            "--process-match",
            &program.matches(),
        ],
    )?;
    let watched = Exporter::agent(agent.pid(), agent.metrics_url());

    let mut fleets = Vec::new();
    for count in FLEETS {
        let present = servers.len();
        while servers.len() < count {
            go_on()?;
            servers.push(program.start(&["--maxmemory", MAXMEMORY])?);
        }
        program.wait_until_watched(&agent, count, go_on)?;
        for server in &servers[present..] {
            go_on()?;
            server.sets_per_second(KEYS, SETS)?;
        }
        thread::sleep(SETTLE);
        let exporter = Exporter::redis_exporter(&redis_exporter, &servers);
        let mut fleet = Fleet::new(count, &watched.scrape()?, &exporter.scrape()?)?;
        fleet.print_series();
        print_heading();
        for round in 0..arguments.rounds {
            go_on()?;
            let measurement = measure(&watched, &exporter, round % 2 == 1)?;
            log.add(&measurement.json(count, round))?;
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

/// Measures one round.
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

/// The measurements of a window.
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
