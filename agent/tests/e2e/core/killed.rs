//! Whenever the agent is killed, no breakpoint is left in a server.

use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use rustix::process::kill_process;

use super::lifecycle::sites;
use crate::code::BREAKPOINT;
use crate::prelude::*;
use crate::probed::{ProbedServers, keeper_of, turn};

pub fn kill_at_random_moments(kills: u32) -> anyhow::Result<()> {
    let probed = ProbedServers::start(3)?;
    let (all, leaks) = (probed.all(), probed.leaks()?);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut midway = 0;
    for round in 0..kills {
        let mut keeper = None;
        let what = match round % 5 {
            0 => "attaching",
            1 => "detaching",
            2 => "changing modes",
            3 => "tracing",
            _ => "profiling",
        };
        let every_call = || probed.agent(&["--probe-mode=every-call"]);
        let victim = match what {
            "attaching" => {
                let agent = every_call()?;
                let wanted = random.usize(1..=all);
                probed.until(&agent, |now| now >= wanted)?;
                agent
            }
            "detaching" => {
                let agent = every_call()?;
                probed.until(&agent, |now| now == all)?;
                // No kill, of the agent or its keeper, can interrupt the removal of probes.
                keeper = random.bool().then(|| keeper_of(agent.pid())).transpose()?;
                agent.signal(Signal::TERM)?;
                let left = random.usize(0..all);
                probed.until(&agent, |now| now <= left).or_else(|error| {
                    // It may have ended before that was seen.
                    agent.must_be_alive().map_or(Ok(0), |()| Err(error))
                })?;
                agent
            }
            "changing modes" => {
                // Evicting calls cost far more than that, so they are observed for a part of the time.
                let agent = probed.agent(&["--probe-mode=auto", "--overhead-budget=0.02%"])?;
                for _ in 0..random.usize(1..5) {
                    let before = probed.placed()?;
                    probed.until(&agent, |now| now != before)?;
                }
                agent
            }
            "tracing" => {
                let redis = &probed.servers[random.usize(..probed.servers.len())];
                let code = Code::of(redis.pid())?;
                let trace = tool("trace", redis.pid(), &["setCommand", "--overhead-budget=100%"])?;
                until_true("a trace places its probes", || {
                    trace.must_be_alive()?;
                    Ok(!code.changed()?.is_empty())
                })?;
                if random.bool() {
                    trace.signal(Signal::INT)?;
                }
                trace
            }
            _ => {
                let redis = &probed.servers[random.usize(..probed.servers.len())];
                tool("profile", redis.pid(), &["--format=folded"])?
            }
        };
        // An arbitrary moment.
        let most = if what == "profiling" { 1_000_000 } else { 4_000 };
        std::thread::sleep(Duration::from_micros(random.u64(0..most)));
        let placed = probed.placed()?;
        midway += u32::from(placed > 0 && placed < all);
        if let Some(keeper) = keeper {
            // It may have ended.
            let _ = kill_process(keeper, Signal::KILL);
        }
        victim.end(Signal::KILL)?;
        probed.must_be_as_before(&format!("no breakpoint after a kill while {what}"))?;
        let leaks: Vec<String> = probed.leaks()?.difference(&leaks).cloned().collect();
        ensure!(leaks.is_empty(), "killed while {what}: {leaks:?}");
    }
    println!("{midway} of {kills} were killed when some of the breakpoints were placed");
    Ok(())
}

fn tool(name: &str, pid: u32, options: &[&str]) -> anyhow::Result<Owned> {
    let mut command = evictscope();
    Owned::start(command.args([name, &pid.to_string()]).args(options))
}

#[test]
#[ignore = "needs root and BPF"]
fn no_breakpoint_outlives_an_agent_that_is_killed() -> anyhow::Result<()> {
    kill_at_random_moments(20)
}

#[test]
#[ignore = "needs root and BPF"]
fn an_agent_whose_keeper_is_killed_says_so_and_ends() -> anyhow::Result<()> {
    let build = PrivateBuild::of_redis()?;
    let redis = build.start(&[])?;
    let agent = Agent::watching(&redis, &["--probe-mode=every-call", &build.only()])?;
    let code = Code::of(redis.pid())?;
    let placed = code.changed()?;
    ensure!(!placed.is_empty(), "no probes");
    let keeper = keeper_of(agent.pid())?;
    // Service managers and terminals send these to all processes of the agent.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::ABORT] {
        kill_process(keeper, signal)?;
    }
    agent.settled()?;
    ensure!(code.changed()? == placed, "probes went: {}", agent.log()?);
    kill_process(keeper, Signal::KILL)?;
    until_true("the probes are gone", || Ok(code.changed()?.is_empty()))?;
    until_true("the agent ends", || Ok(agent.get("/-/healthy").is_err()))?;
    let status = agent.end(Signal::TERM)?;
    let log = agent.log()?;
    ensure!(status.code() == Some(1), "{status}: {log}");
    ensure!(log.contains("`evictscope-keeper`, which holds the probes, has ended"), "{log}");
    Ok(())
}

/// As if an agent had been killed together with its keeper.
#[test]
#[ignore = "needs root and BPF"]
fn breakpoints_that_were_left_are_taken_out_by_the_next_agent() -> anyhow::Result<()> {
    let _turn = turn()?;
    let build = PrivateBuild::of_redis()?;
    let redis = build.start(&["--maxmemory", "0"])?;
    let code = Code::of(redis.pid())?;
    // A server without a limit executes none of them, or it would die.
    let sites = sites(&redis)?;
    let memory = std::fs::File::options().write(true).open(format!("/proc/{}/mem", redis.pid()))?;
    for site in &sites {
        memory.write_all_at(BREAKPOINT, code.address_of(*site))?;
    }
    ensure!(code.changed()? == sites, "{:?}", code.changed()?);
    let check = evictscope().args(["check", &build.only()]).output()?;
    let printed = String::from_utf8_lossy(&check.stdout).into_owned();
    ensure!(printed.contains(&format!("{} breakpoints are in its code", sites.len())), "{printed}");

    let agent = Agent::watching(&redis, &["--probe-mode=evicting-only", &build.only()])?;
    let log = agent.log()?;
    ensure!(log.contains("took out breakpoints that were left"), "{log}");
    ensure!(!agent.get("/metrics")?.contains("\nevictscope_foreign_breakpoints{"), "{log}");
    agent.end_well()?;
    ensure!(code.changed()?.is_empty(), "{:?}", code.changed()?);
    redis.info("evicted_keys")?;
    Ok(())
}
