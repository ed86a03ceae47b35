//! End to end: probe mode `auto` follows what the probes cost a server.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use evictscope_testkit::{agent::Agent, redis::Redis, scrape::Scrape, wait::within};

/// The share of the main thread that every-call mode may cost.
const BUDGET: &str = "1%";
/// Commands a second that would cost far more than that.
const BUSY: f64 = 100_000.0;
/// The time over which `evictscope_overhead_ratio` is a mean, and a reading more: then nothing is left in it of what
/// every-call mode cost before it was given up.
const PAST: Duration = Duration::from_millis(10_200);
/// Below this the probes cost nothing but the expire cycle's.
const NOTHING: f64 = 0.000_5;

#[test]
#[ignore = "needs root and BPF"]
fn every_call_mode_is_on_only_while_it_is_cheap() -> anyhow::Result<()> {
    // It stays far below its limit and never evicts.
    let redis = Redis::start(&["--maxmemory", "1gb"])?;
    let agent = Agent::start(&["--overhead-budget", BUDGET])?;
    let is_in = |mode: &str| {
        let scrape = agent.reading(&redis)?;
        let is_in = scrape.sum("evictscope_probe_mode", &[("mode", mode)])? == 1.0;
        anyhow::Ok(is_in.then_some(()))
    };
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    let begins = is_in("evicting-only")?.is_some();
    ensure!(begins, "it does not begin in evicting-only mode");

    // An idle server comes to every-call mode, in which its commands are counted.
    let (_, took) = within(Duration::from_secs(15), "every-call mode", || {
        is_in("every-call")
    })?;
    println!("every-call mode of an idle server after {took:?}");
    ensure!(took > Duration::from_secs(5), "at once, after {took:?}");
    let settled = || anyhow::Ok(agent.settled()?.of_server(redis.port(), redis.pid()));
    let before = noop_calls(&settled()?)?;
    for _ in 0..20 {
        redis.cli(&["ping"])?;
    }
    let counted = noop_calls(&settled()?)? - before;
    ensure!(counted >= 20.0, "{counted} no-op calls for 20 commands");

    // Under load every-call mode is given up, and the counter of no-op calls is no longer exported.
    let load = redis.load(&["-t", "set", "-P", "16", "-n", "100000000"])?;
    let begun = Instant::now();
    let given_up = within(Duration::from_secs(4), "evicting-only mode", || {
        is_in("evicting-only")
    });
    let scrape = agent.reading(&redis)?;
    let commands = scrape.sum("evictscope_commands_processed_total", &[])?;
    println!("given up {:?} after the load began", begun.elapsed());
    let under_load = busy(&agent, &redis);
    drop(load);
    given_up?;
    let (rate, hits, ratio) = under_load?;
    println!("{commands} commands until it was given up, then {rate} a second, probe cost {ratio}");
    ensure!(rate > BUSY, "too little load: {rate} commands/s");
    ensure!(hits == 0.0, "{hits} hits of a probe that was given up");
    ensure!(
        ratio < NOTHING,
        "probes cost {ratio}, though none was hit for ten seconds"
    );
    let noop = noop_calls(&agent.reading(&redis)?);
    ensure!(noop.is_err(), "uncounted no-op calls are exported");

    // It comes back, but not at once. Meanwhile another server is busy from its start, and never pays.
    let (came, hits) = std::thread::scope(|scope| {
        let busy = scope.spawn(|| hits_of_a_server_that_is_busy_from_the_start(&agent));
        let came = within(Duration::from_secs(60), "every-call mode again", || {
            is_in("every-call")
        });
        (came, busy.join())
    });
    let (_, took) = came?;
    println!("every-call mode again {took:?} after the load ended");
    ensure!(took > Duration::from_secs(15), "back after {took:?}");
    let noop = noop_calls(&agent.reading(&redis)?)?;
    ensure!(noop >= before + counted, "no-op calls went back to {noop}");
    let hits = hits.map_err(|_| anyhow!("the busy server's thread panicked"))??;
    ensure!(
        hits == 0.0,
        "{hits} hits of the entry probe on a server that is busy from the start"
    );
    Ok(())
}

fn noop_calls(scrape: &Scrape) -> anyhow::Result<f64> {
    scrape.sum("evictscope_eviction_calls_total", &[("kind", "noop")])
}

fn entry_hits(scrape: &Scrape) -> anyhow::Result<f64> {
    scrape.sum(
        "evictscope_probe_hits_total",
        &[("probe", "eviction_enter")],
    )
}

/// Returns commands a second, hits of the entry probe and the overhead ratio in ten seconds under load, once the probes
/// of every-call mode are off.
fn busy(agent: &Agent, redis: &Redis) -> anyhow::Result<(f64, f64, f64)> {
    std::thread::sleep(Duration::from_secs(2));
    let before = agent.reading(redis)?;
    let begun = Instant::now();
    std::thread::sleep(PAST);
    let after = agent.reading(redis)?;
    let commands = |scrape: &Scrape| scrape.sum("evictscope_commands_processed_total", &[]);
    let rate = (commands(&after)? - commands(&before)?) / begun.elapsed().as_secs_f64();
    let hits = entry_hits(&after)? - entry_hits(&before)?;
    Ok((rate, hits, after.sum("evictscope_overhead_ratio", &[])?))
}

/// Returns the hits of the entry probe in the first 13 seconds of a server whose load begins at once. An idle server
/// comes to every-call mode sooner.
fn hits_of_a_server_that_is_busy_from_the_start(agent: &Agent) -> anyhow::Result<f64> {
    let redis = Redis::start(&["--maxmemory", "1gb"])?;
    let _load = redis.load(&["-t", "set", "-P", "16", "-n", "100000000"])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    std::thread::sleep(Duration::from_secs(13));
    entry_hits(&agent.reading(&redis)?)
}
