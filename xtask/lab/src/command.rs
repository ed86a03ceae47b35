//! The runs that others ask for: those of `cargo xtask lab SCENARIO`, and the burst of the demo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use evictscope_testkit::cores::Cores;
use evictscope_testkit::process;

use crate::run::{Finished, carry_out};
use crate::scenario::{Plan, Remedy, Scenario, name_of};
use crate::summary;
use crate::summary::{beside, comparison};

/// What to run.
#[derive(clap::Args)]
pub struct Arguments {
    /// What to make happen
    scenario: Scenario,
    /// End after this many complete cycles
    #[arg(long)]
    cycles: Option<usize>,
    /// Requests a second [default: as many as keep the server as busy as the scenario wants it]
    #[arg(long)]
    rate: Option<f64>,
    /// What `remedy` applies
    #[arg(long, value_enum, default_value = "ttl")]
    remedy: Remedy,
    /// The scenario in which `remedy` applies it [default: by remedy]
    #[arg(long, value_enum)]
    cause: Option<Scenario>,
    /// Watch it with evictscope (needs root), and print what that says beside the record
    #[arg(long)]
    pub agent: bool,
}

/// Runs the scenario, watched by `agent`.
pub fn run(arguments: &Arguments, agent: Option<PathBuf>) -> Result<()> {
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
        rate: arguments.rate,
        ..Plan::new(tried_in, agent)
    };
    plan.cycles = arguments.cycles.or(plan.cycles);
    let carry_out = |plan: &Plan| -> Result<Finished> {
        let finished = carry_out(plan, cores.as_ref(), &interrupted)?;
        println!("\n{}", summary::outcome(&finished.outcome));
        if let Some(testimony) = &finished.testimony {
            println!("{}", beside(&finished.outcome, testimony));
        }
        Ok(finished)
    };
    let without = carry_out(&plan)?;
    if !is_remedy {
        return Ok(());
    }

    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let mut runs = vec![("without".to_owned(), without)];
    for (run, name) in remedy.runs().into_iter().enumerate() {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(());
        }
        plan.name = format!("remedy-{name}");
        let without = &runs[0].1;
        plan.rate = Some(without.outcome.rate);
        remedy.apply(run, &mut plan.parameters, without);
        runs.push((name, carry_out(&plan)?));
    }
    print!("{}", comparison(&runs));
    if let (Some(agent), [(_, without), others @ ..]) = (&plan.agent, &runs[..]) {
        for (name, with) in others {
            println!("\n{name}: {}", compared(agent, without, with)?);
        }
    }
    Ok(())
}

/// Makes one complete cycle, watched by the agent.
pub fn one_cycle(agent: PathBuf, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = Cores::split()?;
    let plan = Plan {
        cycles: Some(1),
        ..Plan::new(Scenario::Burst, Some(agent))
    };
    carry_out(&plan, cores.as_ref(), interrupted)
}

/// Returns what `evictscope compare` says about the first records of two runs.
fn compared(agent: &Path, without: &Finished, with: &Finished) -> Result<String> {
    let Some((before, after)) = without.records.first().zip(with.records.first()) else {
        return Ok("nothing to compare, because one of the two runs left no record".to_owned());
    };
    process::answer_of(Command::new(agent).arg("compare").args([before, after]))
}
