//! End to end: probe mode `auto` follows what the probes cost a server.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use evictscope_testkit::{agent::Agent, redis::Redis, wait::within};

/// The share of the main thread that every-call mode may cost.
const BUDGET: &str = "1%";
/// Commands a second that would cost far more than that.
const BUSY: f64 = 100_000.0;

#[test]
#[ignore = "needs root and BPF"]
fn every_call_mode_is_on_only_while_it_is_cheap() -> anyhow::Result<()> {
    // It stays far below its limit and never evicts.
    let redis = Redis::start(&["--maxmemory", "1gb"])?;
    let agent = Agent::start(&["--overhead-budget", BUDGET])?;
    let name = redis.name();
    let server = [("server", name.as_str())];
    let noop = [("server", name.as_str()), ("kind", "noop")];
    let entered = [("server", name.as_str()), ("probe", "eviction_enter")];
    let is_in = |mode: &str| {
        let labels = [("server", name.as_str()), ("mode", mode)];
        let is_in = agent.scrape()?.sum("evictscope_probe_mode", &labels)? == 1.0;
        anyhow::Ok(is_in.then_some(()))
    };
    agent.wait_for(&name, Duration::from_secs(3))?;
    ensure!(
        is_in("evicting-only")?.is_some(),
        "it does not begin in evicting-only mode"
    );

    // An idle server comes to every-call mode, in which its commands are counted.
    let (_, took) = within(Duration::from_secs(15), "every-call mode", || {
        is_in("every-call")
    })?;
    println!("every-call mode of an idle server after {took:?}");
    ensure!(
        took > Duration::from_secs(5),
        "every-call mode at once, after {took:?}"
    );
    let before = agent
        .settled()?
        .sum("evictscope_eviction_calls_total", &noop)?;
    for _ in 0..20 {
        redis.cli(&["ping"])?;
    }
    let counted = agent
        .settled()?
        .sum("evictscope_eviction_calls_total", &noop)?
        - before;
    ensure!(counted >= 20.0, "{counted} no-op calls for 20 commands");

    // Under load every-call mode is given up, and the counter of no-op calls is no longer exported.
    let load = redis.load(&["-t", "set", "-P", "16", "-n", "100000000"])?;
    let begun = Instant::now();
    let given_up = within(Duration::from_secs(4), "evicting-only mode", || {
        is_in("evicting-only")
    });
    let commands = agent
        .scrape()?
        .sum("evictscope_commands_processed_total", &server)?;
    println!("given up {:?} after the load began", begun.elapsed());
    let under_load = busy(&agent, &server, &entered);
    drop(load);
    given_up?;
    let (rate, hits, ratio) = under_load?;
    println!("{commands} commands until it was given up, then {rate} a second, probe cost {ratio}");
    ensure!(
        rate > BUSY,
        "not the load that was meant: {rate} commands/s"
    );
    ensure!(hits == 0.0, "{hits} hits of a probe that was given up");
    ensure!(ratio < 0.01, "probes cost {ratio}, though none was hit");
    ensure!(
        agent
            .scrape()?
            .sum("evictscope_eviction_calls_total", &noop)
            .is_err(),
        "no-op calls that are not counted are exported"
    );

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
    ensure!(
        took > Duration::from_secs(15),
        "it came back after {took:?}"
    );
    ensure!(
        agent
            .scrape()?
            .sum("evictscope_eviction_calls_total", &noop)?
            >= before + counted,
        "the counter of no-op calls went back"
    );
    let hits = hits.map_err(|_| anyhow!("the busy server's thread panicked"))??;
    ensure!(
        hits == 0.0,
        "{hits} hits of the entry probe on a server that is busy from the start"
    );
    Ok(())
}

/// Returns commands a second, hits of the entry probe and the overhead ratio in two seconds under load, once the probes
/// of every-call mode are off.
fn busy(
    agent: &Agent,
    server: &[(&str, &str)],
    entered: &[(&str, &str)],
) -> anyhow::Result<(f64, f64, f64)> {
    std::thread::sleep(Duration::from_secs(2));
    let before = agent.scrape()?;
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let after = agent.scrape()?;
    let grown =
        |metric: &str, labels| anyhow::Ok(after.sum(metric, labels)? - before.sum(metric, labels)?);
    let rate =
        grown("evictscope_commands_processed_total", server)? / begun.elapsed().as_secs_f64();
    let hits = grown("evictscope_probe_hits_total", entered)?;
    Ok((rate, hits, after.sum("evictscope_overhead_ratio", server)?))
}

/// Returns the hits of the entry probe in the first 13 seconds of a server whose load begins at once. An idle server
/// comes to every-call mode sooner.
fn hits_of_a_server_that_is_busy_from_the_start(agent: &Agent) -> anyhow::Result<f64> {
    let redis = Redis::start(&["--maxmemory", "1gb"])?;
    let _load = redis.load(&["-t", "set", "-P", "16", "-n", "100000000"])?;
    let name = redis.name();
    agent.wait_for(&name, Duration::from_secs(3))?;
    std::thread::sleep(Duration::from_secs(13));
    let entered = [("server", name.as_str()), ("probe", "eviction_enter")];
    agent.scrape()?.sum("evictscope_probe_hits_total", &entered)
}
