//! `cargo xtask lab SCENARIO`.

use std::{sync::atomic::Ordering, time::Duration};

use anyhow::Result;
use evictscope_testkit::{agent::Program, cores::Cores, process};

use crate::{
    run::carry_out,
    scenario::{Plan, Remedy, Scenario, name_of},
    summary,
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
    /// Watch it with evictscope (needs root), and fail where that differs from the record
    #[arg(long)]
    pub agent: bool,
}

/// Runs the scenario, watched by `agent`.
pub fn run(arguments: &Arguments, agent: Option<Program>) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let cores = Cores::split()?;
    let scenario = arguments.scenario;
    let mut plan = Plan::new(scenario, agent);
    if let Some(connections) = arguments.connections {
        plan.parameters.connections = connections;
    }
    if let Some(seconds) = arguments.seconds {
        plan.length = Duration::from_secs(seconds);
    }
    plan.rate = arguments.rate;
    plan.cycles = arguments.cycles;
    let without = carry_out(&plan, cores.as_ref(), None, &interrupted)?;
    println!("\n{}", summary::outcome(&without.outcome));
    without.must_agree(scenario.kind_of_bursts())?;
    if let Some(wanted) = arguments.cycles.filter(|_| !without.outcome.interrupted) {
        without.must_have_cycles(wanted)?;
    }
    if scenario != Scenario::Remedy || interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }

    let remedy = arguments.remedy;
    plan.name = format!("remedy-{}", name_of(&remedy));
    let before = &without.measured;
    plan.rate = Some(remedy.apply(&mut plan.parameters, before.rate, before.key_bytes));
    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let with = carry_out(&plan, cores.as_ref(), None, &interrupted)?;
    println!("\n{}", summary::outcome(&with.outcome));
    with.must_agree(None)?;
    print!(
        "{}",
        summary::comparison(&name_of(&remedy), &without.outcome, &with.outcome)
    );
    Ok(())
}
