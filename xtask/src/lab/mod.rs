//! `cargo xtask lab SCENARIO`: the eviction-burst cycle, and what resembles it, made to happen.
//!
//! A throw-away redis-server on the first core, and on the second one a load that is due at a rate,
//! not when the last reply came ([`generator`]), with a recorder. All of it ends by itself, also on
//! Ctrl-C. The record is the server's own word and the generator's: it knows nothing of the agent,
//! which is judged by it.
//!
//! # The record
//!
//! `target/lab/<scenario>-<seconds since 1970>.jsonl` has one JSON object a line, told apart by its
//! `type`. All times are seconds since 1970 (`at` is when the line was true), all sizes bytes.
//!
//! | type | when | what |
//! |---|---|---|
//! | `run` | first | what is run: server, rate, measured capacity, parameters ([`record::Run`]) |
//! | `event` | as they come | `load_begins`, `load_ends`, `stall_begins`, `stall_ends` ([`record::Event`]) |
//! | `info` | asked 200 times a second | the server's counters and memory ([`info::Sample`]). `at` is the server's own time as it wrote the answer, between `sent` and `received`, which a saturated server lets lie seconds apart. The lines of several connections are not in order: sort by `at`, then by `commands` |
//! | `load` | 10 times a second | the generator's counts since it connected, and its backlog ([`record::Load`]) |
//! | `second` | every second | rates, latencies, backlog of the second ([`record::Second`]). Latency counts from when a request was due, so what waited in the generator has waited |
//! | `result` | last | each cycle ([`cycles::Cycle`]), and of `stall` the swelling ([`stall::Swelling`]) |
//!
//! A file without a `result` is of a run that failed.
//!
//! # What makes the cycle
//!
//! In each round of its event loop the server reads the requests that came in during the last one,
//! and holds their replies until the end of the round. A round of `n` requests holds `n` replies: at
//! the limit, more requests than in any round before means evictions, evictions make the round
//! longer, and a longer round means more requests in the next one. The amplification takes off where
//! what one more reply costs in evictions, times the arrival rate, is more than about 2. It ends when
//! all connections have all their requests under way; then the rounds shrink, memory falls by what
//! the replies of the largest round took, and it takes the `SET`s of the next time to fill that again.
//!
//! So the parameters of `burst` are, with what was seen on two cores of a virtual machine
//! (Debian's redis 7.0.15):
//! - 3,000 connections with at most 2 requests under way: they bound a burst to 6,000 replies, some
//!   35 MiB, which are filled again in 20 s. With 5 instead of 2, one burst evicted 108 MiB in 8 s
//!   and took minutes to come back.
//! - `MGET`s of 200 keys of 200 bytes: a reply of 41 kB for a request of 4 kB. Four `SET`s on each,
//!   for memory to grow by 1.8 MiB a second.
//! - Policy `volatile-lru` (all keys have a time to live) of 64 samples, the most that Redis takes:
//!   50,000 evictions a second and nothing else. With `allkeys-lru` of 5 samples, evictions were too
//!   fast on a keyspace that nearly fits the caches: bursts took 0.3 to 1 s and throughput hardly
//!   fell. On a server of tens of GB, where each sampled key is a cache miss, it takes no such help.
//! - 45 % of the measured capacity. Below the limit that is calm (CPU at 60 %), and what has piled up
//!   in a burst is worked off in 2 s. At 37 to 40 % some bursts fizzled out with a tenth of the
//!   backlog; at 50 % and more the full rounds at the end of a burst went on evicting for seconds, at
//!   full throughput; at 80 % for 10 s.
//! - A mean time to live of 900 s, evenly between 0 and twice that: keys expire all the time, but too
//!   few to keep memory below the limit. The remedy `ttl` shortens it until they do.
//! - Connecting takes 5 s, because Redis gives the reply buffer of each client a new size every 5 s
//!   from its connecting: those of clients that came together swelled and shrank together by 10 MiB.
//! - `maxmemory-clients` is set, far above what is used: then Redis accounts for a client after each
//!   command. Without it, the cron visits a tenth of the clients in each round, and
//!   `mem_clients_normal` was still rising when the burst was long over.

mod client;
mod clock;
mod connection;
mod cores;
mod cycles;
mod generator;
mod info;
mod judge;
mod meter;
mod observer;
mod own_core;
mod prepare;
mod record;
mod resp;
mod run;
mod scenario;
mod schedule;
mod stall;
mod summary;
mod witness;
mod workload;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Result, ensure};

pub use self::{
    client::Client,
    run::{Finished, Onlooker},
};
use self::{
    run::Plan,
    scenario::{Remedy, Scenario},
};
use crate::{agent::Program, build, process, workspace};

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
    agent: bool,
}

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<()> {
    let interrupted = process::catch_ctrl_c()?;
    let agent = match arguments.agent {
        true => {
            build::run()?;
            Some(Program::Built(workspace::agent_binary()?))
        }
        false => None,
    };
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
        agent,
    };
    let without = run::run(&plan, cores, None, &interrupted)?;
    println!("\n{}", summary::outcome(&without.outcome));
    judge(&without, scenario.kind_of_bursts())?;
    if let Some(wanted) = arguments.cycles.filter(|_| !without.outcome.interrupted) {
        had_cycles(&without, wanted)?;
    }
    if scenario != Scenario::Remedy || interrupted.load(Ordering::Relaxed) {
        return Ok(());
    }

    let remedy = arguments.remedy;
    plan.name = format!("remedy-{}", remedy.name());
    plan.rate = Some(remedy.apply(&mut plan.parameters, &without.run));
    // As long as the run without it, however soon that had its cycles.
    plan.length = Duration::from_secs_f64(without.outcome.seconds);
    plan.cycles = None;
    let with = run::run(&plan, cores, None, &interrupted)?;
    println!("\n{}", summary::outcome(&with.outcome));
    judge(&with, None)?;
    print!(
        "{}",
        summary::comparison(remedy.name(), &without.outcome, &with.outcome)
    );
    Ok(())
}

/// One complete cycle of `burst`, watched by the agent.
pub fn one_cycle(agent: Program, interrupted: &AtomicBool) -> Result<Finished> {
    let cores = cores::choose()?;
    run::run(&bursts(agent, 1), cores, None, interrupted)
}

/// As many complete cycles of `burst`, watched by the agent, and through it by `onlooker`. Fails where
/// the agent and the record differ, or the onlooker finds a fault. A run that fails while something
/// else was on the server's core is no evidence, and is made once more.
pub fn cycles_before(
    onlooker: &mut dyn Onlooker,
    agent: Program,
    cycles: usize,
    interrupted: &AtomicBool,
) -> Result<()> {
    let cores = cores::choose()?;
    let plan = bursts(agent, cycles);
    let mut attempt = || {
        let finished = run::run(&plan, cores, Some(&mut *onlooker), interrupted)?;
        ensure!(!finished.outcome.interrupted, "interrupted");
        println!("\n{}", summary::outcome(&finished.outcome));
        let was_disturbed = finished.outcome.was_disturbed();
        let verdict = judge(&finished, Scenario::Burst.kind_of_bursts())
            .and(had_cycles(&finished, cycles))
            .and(finished.onlooker);
        Ok((verdict, was_disturbed))
    };
    match attempt()? {
        (Err(error), true) => {
            println!("{error:#}\nonce more, as that may be the other's doing");
            attempt()?.0
        }
        (verdict, _) => verdict,
    }
}

fn bursts(agent: Program, cycles: usize) -> Plan {
    Plan {
        name: Scenario::Burst.name().to_owned(),
        parameters: Scenario::Burst.parameters(),
        rate: None,
        length: Duration::from_secs(Scenario::Burst.seconds()),
        cycles: Some(cycles),
        agent: Some(agent),
    }
}

/// Fails where a run ended before it had as many complete cycles as wanted.
fn had_cycles(finished: &Finished, wanted: usize) -> Result<()> {
    let outcome = &finished.outcome;
    let alone = outcome.cycles.iter().filter(|cycle| cycle.stands_alone());
    let complete = alone.count();
    ensure!(
        complete >= wanted,
        "{complete} complete cycles instead of {wanted} in {:.0} s",
        outcome.seconds
    );
    Ok(())
}

/// Prints what the agent said, if there was one, beside what the record shows; fails where they differ.
fn judge(finished: &Finished, kind: Option<&str>) -> Result<()> {
    let Some(testimony) = &finished.testimony else {
        return Ok(());
    };
    let outcome = &finished.outcome;
    let begin = outcome.at - outcome.seconds;
    let comparison = judge::compare(begin, &outcome.cycles, &testimony.bursts, kind);
    println!("{}", comparison.text);
    ensure!(
        comparison.differences.is_empty(),
        "evictscope and the record differ:\n  {}",
        comparison.differences.join("\n  ")
    );
    println!(
        "evictscope and the record agree: {} bursts",
        testimony.bursts.len()
    );
    Ok(())
}
