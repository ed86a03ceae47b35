//! The runs that others ask for: those of `cargo xtask lab SCENARIO`, and bursts that other tasks look at.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};
use evictscope_testkit::{agent::Program, cores::Cores, process};

use crate::{
    compared::compared,
    comparison::comparison,
    judge::Finished,
    lives::Ttls,
    remedy::{Before, Remedy},
    run::{Onlooker, carry_out},
    scenario::{Plan, Scenario, name_of},
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
    /// Requests a second, in place of as many as keep the server as busy as the scenario wants it
    #[arg(long)]
    rate: Option<f64>,
    /// Client connections [default: by scenario]
    #[arg(long)]
    connections: Option<usize>,
    /// What `remedy` applies
    #[arg(long, value_enum, default_value = "ttl")]
    remedy: Remedy,
    /// The scenario in which `remedy` applies it [default: by remedy]
    #[arg(long, value_enum)]
    cause: Option<Scenario>,
    /// The times to live in `expire`
    #[arg(long, value_enum, default_value = "one")]
    ttls: Ttls,
    /// Watch it with evictscope (needs root), and fail where that differs from the record
    #[arg(long)]
    pub agent: bool,
}

/// Runs the scenario, watched by `agent`.
pub fn run(arguments: &Arguments, agent: Option<Program>) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let cores = Cores::split()?;
    let scenario = arguments.scenario;
    let remedy = arguments.remedy;
    let is_remedy = scenario == Scenario::Remedy;
    let tried_in = if is_remedy {
        arguments.cause.unwrap_or_else(|| remedy.scenario())
    } else {
        scenario
    };
    let mut plan = Plan {
        name: name_of(&scenario),
        judges_records: true,
        ..Plan::new(tried_in, agent)
    };
    if tried_in == Scenario::Expire {
        plan.parameters.mix.lives = arguments.ttls.lives();
    }
    if let Some(connections) = arguments.connections {
        plan.parameters.connections = connections;
    }
    if let Some(seconds) = arguments.seconds {
        plan.length = Duration::from_secs(seconds);
    }
    plan.rate = arguments.rate;
    plan.cycles = arguments.cycles.or(plan.cycles);
    let without = carry_out(&plan, cores.as_ref(), None, &interrupted)?;
    println!("\n{}", summary::outcome(&without.outcome));
    let mut verdict = without.must_agree(scenario.kind_of_bursts());
    if let Some(wanted) = arguments.cycles.filter(|_| !without.outcome.interrupted) {
        verdict = verdict.and(without.must_have_cycles(wanted));
    }
    if !is_remedy {
        return verdict;
    }

    let first = without.outcome.cycles.first();
    let before = Before {
        measured: without.measured,
        rate: without.outcome.rate,
        client_buffers: first.map_or(without.outcome.client_buffers_peak, |cycle| {
            cycle.client_buffers_before
        }),
    };
    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let mut runs = vec![("without".to_owned(), without)];
    for change in remedy.changes() {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        plan.name = format!("remedy-{}", change.name());
        plan.rate = Some(change.apply(&mut plan.parameters, &before));
        let with = carry_out(&plan, cores.as_ref(), None, &interrupted)?;
        println!("\n{}", summary::outcome(&with.outcome));
        // A difference says nothing about the remedy: both runs are compared, and then it is told.
        verdict = verdict.and(with.must_agree(None));
        runs.push((change.name(), with));
    }
    print!("{}", comparison(&runs));
    if let (Some(agent), [(_, without), others @ ..]) = (&plan.agent, &runs[..]) {
        for (name, with) in others {
            println!("\n{}", compared(agent, without, name, with)?);
        }
    }
    verdict
}

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: Program, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    carry_out(&bursts(agent, 1), cores.as_ref(), None, interrupted)
}

/// Makes complete cycles, watched by the agent, and through it by `onlooker`.
///
/// # Errors
///
/// Fails where the agent and the record differ, where the onlooker finds a fault, and on Ctrl-C. What the onlooker looks for
/// may be missing because the run was disturbed: the error says so.
pub fn cycles_before(
    onlooker: &mut dyn Onlooker,
    agent: Program,
    cycles: usize,
    interrupted: &AtomicBool,
) -> Result<()> {
    let cores = Cores::split()?;
    let plan = bursts(agent, cycles);
    let finished = carry_out(&plan, cores.as_ref(), Some(onlooker), interrupted)?;
    let outcome = &finished.outcome;
    ensure!(!outcome.interrupted, "interrupted");
    println!("\n{}", summary::outcome(outcome));
    finished
        .must_agree(Scenario::Burst.kind_of_bursts())
        .and(finished.must_have_cycles(cycles))?;
    let was_disturbed = outcome.was_disturbed();
    finished.onlooker.map_err(|error| match was_disturbed {
        true => error.context("this run was disturbed, as told above"),
        false => error,
    })
}

fn bursts(agent: Program, cycles: usize) -> Plan {
    Plan {
        cycles: Some(cycles),
        ..Plan::new(Scenario::Burst, Some(agent))
    }
}
