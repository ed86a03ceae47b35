//! Probe mode `auto` follows what the probes cost a server.

use crate::core::budget::mode_is;
use crate::prelude::*;

/// The share of the main thread that every-call mode may cost.
const BUDGET: &str = "1%";
/// Commands after which the agent has long decided about a server that does nothing else.
const MANY: f64 = 500_000.0;

fn noop_calls(scrape: &Scrape) -> anyhow::Result<f64> {
    scrape.sum("evictscope_eviction_calls_total", &[("kind", "noop")])
}

fn entry_hits(scrape: &Scrape) -> anyhow::Result<f64> {
    scrape.sum("evictscope_probe_hits_total", &[("probe", "eviction_enter")])
}

/// Waits until a server has executed many more commands, and returns what the agent then says about it.
fn after_many(agent: &Agent, redis: &Redis) -> anyhow::Result<Scrape> {
    let commands = || redis.info("total_commands_processed");
    let before = commands()?;
    until_true("many commands are executed", || Ok(commands()? - before > MANY))?;
    agent.settled_reading(redis)
}

#[test]
#[ignore = "needs root and BPF"]
fn every_call_mode_is_on_only_while_it_is_cheap() -> anyhow::Result<()> {
    // It stays far below its limit and never evicts.
    let redis = Redis::private(&["--maxmemory", "1gb"])?;
    let agent = Agent::start(&["--overhead-budget", BUDGET])?;
    let becomes = |mode: &str| until_true(mode, || mode_is(&agent.reading(&redis)?, mode));
    agent.watches(&redis)?;

    // An idle server enters every-call mode, in which its commands are counted.
    becomes("every-call")?;
    let before = noop_calls(&agent.settled_reading(&redis)?)?;
    for _ in 0..20 {
        redis.cli(&["ping"])?;
    }
    let counted = noop_calls(&agent.settled_reading(&redis)?)? - before;
    ensure!(counted >= 20.0, "{counted} no-op calls for 20 commands");

    // Under load every-call mode is given up, and the counter of no-op calls is no longer exported.
    // Without a pause: probes on every call would cost it many times the budget, on any machine.
    let load = redis.load("-t set -P 16 -c 20 -n 100000000")?;
    becomes("evicting-only")?;
    let hits = entry_hits(&after_many(&agent, &redis)?)?;
    let scrape = after_many(&agent, &redis)?;
    let hits = entry_hits(&scrape)? - hits;
    ensure!(hits == 0.0, "{hits} hits of a probe that was given up");
    let noop = noop_calls(&scrape);
    ensure!(noop.is_err(), "uncounted no-op calls are exported");
    ensure!(mode_is(&scrape, "evicting-only")?, "back under load");
    drop(load);

    // It comes back.
    becomes("every-call")?;
    let noop = noop_calls(&agent.reading(&redis)?)?;
    ensure!(noop >= before + counted, "no-op calls went back to {noop}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn expire_cycles_are_left_out_where_they_alone_cost_more_than_the_budget() -> anyhow::Result<()> {
    // Five hundred cycles a second cost ten times as much.
    let redis = Redis::private(&["--hz", "500"])?;
    let agent = Agent::watching(&redis, &["--overhead-budget", "0.01%"])?;
    until_true("cycles are left out", || {
        Ok(agent.reading(&redis)?.by_label("evictscope_not_found", "item").contains_key("expire_cycle"))
    })?;
    let scrape = agent.settled_reading(&redis)?;
    let cycles = scrape.by_label("evictscope_expire_cycle_duration_seconds_count", "type");
    ensure!(cycles.is_empty(), "cycles are exported: {cycles:?}");
    until_true("the budget is kept", || {
        let scrape = agent.reading(&redis)?;
        Ok(scrape.sum("evictscope_overhead_ratio", &[])? < scrape.sum("evictscope_overhead_budget_ratio", &[])?)
    })
}
