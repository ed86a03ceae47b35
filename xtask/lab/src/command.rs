//! The runs that others ask for: those of `cargo xtask lab SCENARIO`, and the burst of the demo.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::Result;
use evictscope_testkit::{agent::Program, cores::Cores, process};

use crate::{
    comparison::comparison,
    judge::Finished,
    remedy::{Before, Remedy},
    run::carry_out,
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
    /// Watch it with evictscope (needs root), and fail where that differs from the record of an undisturbed run
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
        ..Plan::new(tried_in, agent)
    };
    if let Some(connections) = arguments.connections {
        plan.parameters.connections = connections;
    }
    if let Some(seconds) = arguments.seconds {
        plan.length = Duration::from_secs(seconds);
    }
    plan.rate = arguments.rate;
    plan.cycles = arguments.cycles.or(plan.cycles);
    let without = carry_out(&plan, cores.as_ref(), &interrupted)?;
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
    for (run, name) in remedy.runs().into_iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        plan.name = format!("remedy-{name}");
        plan.rate = Some(remedy.apply(run, &mut plan.parameters, &before));
        let with = carry_out(&plan, cores.as_ref(), &interrupted)?;
        println!("\n{}", summary::outcome(&with.outcome));
        // A difference says nothing about the remedy: both runs are compared, and then it is told.
        verdict = verdict.and(with.must_agree(None));
        runs.push((name, with));
    }
    print!("{}", comparison(&runs));
    if let (Some(agent), [(_, without), others @ ..]) = (&plan.agent, &runs[..]) {
        for (name, with) in others {
            println!("\n{name}: {}", compared(agent, without, with)?);
        }
    }
    verdict
}

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: Program, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    let plan = Plan {
        cycles: Some(1),
        ..Plan::new(Scenario::Burst, Some(agent))
    };
    carry_out(&plan, cores.as_ref(), interrupted)
}

/// Returns what `evictscope compare` says of the first records of two runs.
fn compared(agent: &Program, without: &Finished, with: &Finished) -> Result<String> {
    let first = |run: &Finished| Some(run.testimony.as_ref()?.records.first()?.clone());
    let Some((before, after)) = first(without).zip(first(with)) else {
        return Ok("nothing to compare, as one of the two runs left no record".to_owned());
    };
    process::answer_of(agent.command("compare").args([before, after]))
}
