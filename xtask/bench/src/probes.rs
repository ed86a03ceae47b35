//! `cargo xtask bench probes`: what probes cost a server, evictscope's and others'.
//!
//! Each round measures the same two servers, one of them watched by each side in turn. Only measurements of one round are compared. The
//! servers have a core of their own.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::cores::Cores;
use evictscope_testkit::process;

use crate::report;
use crate::side::{Said, Side};
use crate::twins::{CONDITIONS, Condition, Target, Took, Twins};

/// What to measure, and how long.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// Rounds, each of which measures every side once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// A redis-server or valkey-server other than the one on PATH
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
}

pub struct Measurement {
    /// What the load took.
    pub took: Took,
    /// What the side says about it.
    pub said: Said,
}

/// Measures and prints.
pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    let target = Target::find(arguments.server.as_deref())?;
    let interrupted = process::catch_ctrl_c()?;

    let cores = Cores::split()?;
    println!("server   {}: {}", target.program.display(), target.version);
    println!("function {}", target.function);
    if cores.is_none() {
        println!("there is only one core: the load slows the servers down");
    }
    for condition in &CONDITIONS {
        println!(
            "\n{} server: maxmemory {}, {} rounds",
            condition.name, condition.maxmemory, arguments.rounds
        );
        let twins = Twins::start(&target, condition, cores.as_ref())?;
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
                let measured = measure(side, agent, &twins, &target, condition);
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

/// Measures the servers under load once, while a side watches one of them.
fn measure(
    side: Side,
    agent: &Path,
    twins: &Twins,
    target: &Target,
    condition: &Condition,
) -> Result<Measurement> {
    let watch = side.watch(agent, &twins.watched, target)?;
    let took = twins.load()?;
    let said = watch.finish(&twins.watched, took.commands)?;
    ensure!(
        !condition.evicts || said.evicting_share.is_none_or(|share| share > 0.5),
        "hardly any command evicted: this is not the intended load"
    );
    Ok(Measurement { took, said })
}
