//! Every number about eviction calls, on each real server that runs here.
//!
//! Judged by what the server says about itself in `INFO`.

use std::path::Path;

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, redis::Redis};

use crate::on_servers::{REDIS, on_each};

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_are_counted_once_on_every_server() -> anyhow::Result<()> {
    on_each(&REDIS, evicting_calls)
}

#[test]
#[ignore = "needs root and BPF"]
fn each_command_makes_one_call_on_every_server() -> anyhow::Result<()> {
    on_each(&REDIS, every_call)
}

/// Checks that at least 100,000 calls are counted once everywhere, and that every goal is right.
fn evicting_calls(program: &Path) -> anyhow::Result<()> {
    let redis = Redis::own_of(program, &[])?;
    let agent = Agent::watching(&redis, &["--probe-mode", "evicting-only"])?;
    redis.write_keys(400_000)?;

    let scrape = agent.settled_reading(&redis)?;
    let evicting = [("kind", "evicting")];
    let calls = scrape.sum("evictscope_eviction_calls_total", &evicting)?;
    ensure!(calls >= 100_000.0, "only {calls} evicting calls");
    let goals = scrape.count("evictscope_mem_tofree_bytes", &[])?;
    ensure!(goals == calls, "{goals} goals, {calls} calls");
    let timed = scrape.count("evictscope_eviction_call_duration_seconds", &evicting)?;
    ensure!(timed == calls, "{timed} durations, {calls} calls");
    // Each of them is checked, and anything wrong would have a series.
    for nothing in ["evictscope_plan_withdrawn", "evictscope_read_faults_total"] {
        let wrong = scrape.by_label(nothing, "reason");
        ensure!(wrong.is_empty(), "{nothing}: {wrong:?}");
    }
    let results = scrape.by_label("evictscope_eviction_calls_total", "result");
    ensure!(!results.contains_key("unknown"), "results that are not known: {results:?}");
    println!("{calls} evicting calls, no mismatch");

    let evicted = redis.info("evicted_keys")?;
    ensure!(evicted >= calls / 2.0, "{evicted} keys evicted in {calls} calls");
    let seen = scrape.sum("evictscope_evicted_keys_total", &[])?;
    ensure!(seen == evicted, "evicted keys: {seen}, INFO says {evicted}");
    Ok(())
}

/// Checks that in every-call mode each command makes one call.
///
/// `evictionTimeProc` makes calls without a command: after a call that stopped at its time limit (result `running`), or
/// after `CONFIG SET maxmemory` below the used memory. With `maxmemory-eviction-tenacity 100` there is no time limit,
/// and it makes none.
fn every_call(program: &Path) -> anyhow::Result<()> {
    let redis = Redis::own_of(program, &["--maxmemory-eviction-tenacity", "100"])?;
    let agent = Agent::watching(&redis, &["--probe-mode", "every-call"])?;
    let settled = || agent.settled_reading(&redis);
    let before = settled()?;
    let commands = redis.info("total_commands_processed")?;
    redis.write_keys(200_000)?;
    // An INFO does not count itself. The first of these two is in the difference, and the second in the calls.
    let commands = redis.info("total_commands_processed")? - commands + 1.0;
    let after = settled()?;

    let grown = |metric: &str| anyhow::Ok(after.sum(metric, &[])? - before.sum(metric, &[])?);
    let calls = grown("evictscope_eviction_calls_total")?;
    let kind = |kind| after.sum("evictscope_eviction_calls_total", &[("kind", kind)]);
    let (noop, evicting) = (kind("noop")?, kind("evicting")?);
    println!("{commands} commands, {calls} calls: {noop} no-op, {evicting} evicting");
    ensure!(commands >= 200_000.0 && noop > 10_000.0 && evicting > 10_000.0, "not the load that was meant");
    ensure!(calls == commands, "{calls} calls, {commands} commands");
    let seen = grown("evictscope_commands_processed_total")?;
    ensure!(seen == commands, "{seen} commands, INFO says {commands}");
    let noops = [("kind", "noop")];
    let timed = after.count("evictscope_eviction_call_duration_seconds", &noops)?;
    ensure!(timed == noop, "{timed} durations of {noop} no-op calls");
    Ok(())
}
