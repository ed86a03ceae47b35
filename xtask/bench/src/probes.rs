//! `cargo xtask bench probes`: what probes cost a server, evictscope's and others'.
//!
//! Each round measures the same redis-server under the same load, alone and watched by each side in turn.
//! Only measurements of one round are compared. The server has a core of its own.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::Ordering,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{cores::Cores, process, redis::Redis};

use crate::{
    report,
    side::{Side, Watch},
    target::{CONDITIONS, Condition, Measurement, Target},
};

/// What to measure, and how long.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Another redis-server or valkey-server than the one on PATH
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

/// Measures and prints.
pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    let target = Target::find(arguments.server.as_deref())?;
    let interrupted = process::catch_ctrl_c()?;

    let cores = Cores::split()?;
    println!("server   {}: {}", target.program.display(), target.version);
    println!("function {}", target.function);
    if cores.is_none() {
        println!("there is only one core: the load slows the server down");
    }
    for condition in &CONDITIONS {
        let program = Command::new(&target.program);
        let start = || Redis::start_program(program, &["--maxmemory", condition.maxmemory]);
        let server = match &cores {
            Some(cores) => cores.on_the_servers(start)?,
            None => start()?,
        };
        let requests = condition.requests;
        println!(
            "\n{} server: maxmemory {}, {} rounds of {requests} SETs for each side",
            condition.name, condition.maxmemory, arguments.rounds
        );
        // All rounds then find the same keys.
        server.sets_per_second(condition.keys, condition.keys.max(requests))?;
        let mut rounds = Vec::new();
        report::print_heading();
        for round in 0..arguments.rounds {
            let is_reversed = round % 2 == 1;
            let mut order = Side::ALL;
            if is_reversed {
                order.reverse();
            }
            let mut sides = Vec::new();
            for side in order {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                let watch = side.watch(agent, &server, &target)?;
                let measured = measure(watch, condition, &server, requests);
                sides.push(measured.with_context(|| side.name())?);
            }
            if is_reversed {
                sides.reverse();
            }
            report::print_round(round, &sides);
            rounds.push(sides);
        }
        report::print(condition, &rounds);
    }
    Ok(())
}

/// Measures the server under load once, while it is watched.
fn measure(
    watch: Watch,
    condition: &Condition,
    server: &Redis,
    requests: u32,
) -> Result<Measurement> {
    let before = server.main_thread_times()?.running;
    let rate = server.sets_per_second(condition.keys, requests)?;
    let cpu = server.main_thread_times()?.running - before;
    let said = watch.finish(server, requests)?;
    let evicting_share = (said.evicting).map(|calls| calls / f64::from(requests));
    ensure!(
        !condition.evicts || evicting_share.is_none_or(|share| share > 0.5),
        "hardly any command evicted: this is not the load that was meant"
    );
    Ok(Measurement {
        rate,
        cpu: cpu.as_nanos() as f64 / f64::from(requests),
        evicting_share,
        said: said.cost_ns.map(|cost| cost / f64::from(requests)),
    })
}
