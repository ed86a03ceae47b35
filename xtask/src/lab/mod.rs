//! `cargo xtask lab SCENARIO`: the eviction-burst cycle, and what resembles it, made to happen.

mod client;
mod clock;
mod connection;
mod cores;
mod cycles;
mod generator;
mod info;
mod meter;
mod observer;
mod prepare;
mod record;
mod resp;
mod run;
mod scenario;
mod schedule;
mod stall;
mod summary;
mod workload;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};

use self::{
    run::Plan,
    scenario::{Remedy, Scenario},
};

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to make happen
    scenario: Scenario,
    /// End after this many complete cycles
    #[arg(long)]
    cycles: Option<usize>,
    /// End after this many seconds of load [default: by scenario]
    #[arg(long)]
    seconds: Option<u64>,
    /// Requests a second, in place of a share of the measured capacity
    #[arg(long)]
    rate: Option<f64>,
    /// Client connections [default: by scenario]
    #[arg(long)]
    connections: Option<usize>,
    /// What `remedy` applies
    #[arg(long, value_enum, default_value = "ttl")]
    remedy: Remedy,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))
        .context("cannot catch Ctrl-C")?;
    // Before anything is pinned.
    let cores = cores::choose()?;
    let scenario = arguments.scenario;
    let mut parameters = scenario.parameters();
    if let Some(connections) = arguments.connections {
        parameters.connections = connections;
    }
    let mut plan = Plan {
        name: scenario.name().to_owned(),
        parameters,
        rate: arguments.rate,
        length: Duration::from_secs(arguments.seconds.unwrap_or(scenario.seconds())),
        cycles: arguments.cycles,
    };
    let without = run::run(&plan, cores, &interrupted)?;
    println!("\n{}", summary::outcome(&without.outcome));
    if scenario != Scenario::Remedy || interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }

    let remedy = arguments.remedy;
    plan.name = format!("remedy-{}", remedy.name());
    plan.rate = Some(remedy.apply(&mut plan.parameters, &without.run));
    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let with = run::run(&plan, cores, &interrupted)?;
    println!("\n{}", summary::outcome(&with.outcome));
    print!(
        "{}",
        summary::comparison(remedy.name(), &without.outcome, &with.outcome)
    );
    Ok(())
}
