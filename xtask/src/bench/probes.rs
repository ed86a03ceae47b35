//! `cargo xtask bench probes`: what probes cost a server, evictscope's and others'.
//!
//! The same redis-server and the same load in turn within every round, alone and watched by each
//! side; what is compared is always of the same round. The server has a core of its own.

use std::{path::PathBuf, sync::atomic::Ordering};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{cores::Cores, log::Log, report, rivals, side::Side, target::Target};
use crate::{
    build, process,
    redis::{Server, measure_sets},
    workspace,
};

/// What to measure, and how long.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Requests of each measurement of the healthy server; of the evicting one, half of them
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(10_000..))]
    requests: u32,
    /// Another redis-server or valkey-server than the one on PATH
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

/// A state of the server to measure it in.
pub struct Condition {
    /// For the tables.
    pub name: &'static str,
    /// The server's limit.
    pub maxmemory: &'static str,
    /// Of how many keys the load writes at random.
    keys: u32,
    /// The load is this part of the requests that were asked for.
    part: u32,
    /// Whether about every command must evict.
    pub evicts: bool,
}

const CONDITIONS: [Condition; 2] = [
    // All the keys take a fiftieth of the limit.
    Condition {
        name: "healthy",
        maxmemory: "1gb",
        keys: 100_000,
        part: 1,
        evicts: false,
    },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new one.
    Condition {
        name: "evicting",
        maxmemory: "64mb",
        keys: 3_000_000,
        part: 2,
        evicts: true,
    },
];

/// One measurement.
#[derive(Clone, Copy)]
pub struct Measurement {
    /// Commands a second, as the client saw it.
    pub rate: f64,
    /// CPU time of the server's main thread for one command, in nanoseconds.
    pub cpu: f64,
    /// How many of the commands made an evicting call, where this was counted.
    pub evicting_share: Option<f64>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "the probes need root: run `cargo xtask bench probes` as root"
    );
    build::run()?;
    rivals::provide()?;
    let agent = workspace::agent_binary()?;
    let target = Target::find(arguments.server.as_deref())?;
    // A Ctrl-C ends the load; what is run here then ends everything else in order.
    let interrupted = process::catch_ctrl_c()?;

    let cores = Cores::split()?;
    println!("server   {}: {}", target.program.display(), target.version);
    println!(
        "cores    {}",
        match cores {
            Some(_) => "the server has one of its own",
            None => "there is only one: the load slows the server down",
        }
    );
    let mut log = Log::create(
        "bench-probes.jsonl",
        &json!({
            "program": target.program,
            "version": target.version,
            "function": target.function,
            "endbr64": target.endbr64,
        }),
    )?;
    let mut summaries = Vec::new();
    for condition in &CONDITIONS {
        let start = || Server::start_program(&target.program, condition.maxmemory);
        let server = match &cores {
            Some(cores) => cores.on_the_servers(start)?,
            None => start()?,
        };
        let requests = arguments.requests / condition.part;
        println!(
            "\n{} server: maxmemory {}, {} rounds of {requests} SETs for each side",
            condition.name, condition.maxmemory, arguments.rounds
        );
        // Fills the keys, so that all rounds find the server alike.
        measure_sets(&server, condition.keys, condition.keys.max(requests))?;
        let mut sides: [Vec<Measurement>; Side::ALL.len()] = Default::default();
        report::print_heading();
        for round in 0..arguments.rounds {
            let mut order: Vec<usize> = (0..Side::ALL.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                let side = Side::ALL[index];
                let watch = side.watch(&agent, &server, &target)?;
                let before = server.main_thread_times()?.running;
                let rate = measure_sets(&server, condition.keys, requests)?;
                let cpu = server.main_thread_times()?.running - before;
                let cpu = cpu.as_nanos() as f64 / f64::from(requests);
                let counted = watch
                    .finish(&server, requests)
                    .with_context(|| side.name())?;
                let evicting_share = counted.evicting.map(|calls| calls / f64::from(requests));
                ensure!(
                    !condition.evicts || evicting_share.is_none_or(|share| share > 0.5),
                    "{}: hardly any command evicted: this is not the load that was meant",
                    side.name()
                );
                let measurement = Measurement {
                    rate,
                    cpu,
                    evicting_share,
                };
                log.line(&json!({
                    "server": condition.name,
                    "round": round,
                    "side": side.name(),
                    "sets_per_second": measurement.rate,
                    "main_thread_cpu_ns_per_command": measurement.cpu,
                    "evicting_calls_per_command": measurement.evicting_share,
                }))?;
                sides[index].push(measurement);
            }
            report::print_round(round, &sides);
        }
        let summary = report::Summary::of(condition, &sides);
        summary.print();
        summaries.push(summary);
    }
    report::print_targets(&summaries, &target);
    println!("\nall measurements: {}", log.path().display());
    Ok(())
}
