//! Whatever a server does, the probes cost it no more than the budget.
//!
//! The clients of the first server send pipelined `SET`s without a pause, and nothing takes their CPU. So its main
//! thread is busy on any machine, and probes on all of its evicting calls would cost many times the budget.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use evictscope_testkit::process;
use evictscope_testkit::threads::SchedulerTimes;

use crate::prelude::*;

/// How many times the cost is read, once a second: it is a mean of the last ten.
const READINGS: usize = 20;
/// The time that the mean covers, in seconds.
const WINDOW: f64 = 10.0;
/// How far the server's counts of keys and of evicting calls may be apart.
const TOLERANCE: f64 = 0.1;
/// Bytes of each value that is written.
const VALUE: usize = 500;

pub fn mode_is(scrape: &Scrape, mode: &str) -> anyhow::Result<bool> {
    Ok(scrape.sum("evictscope_probe_mode", &[("mode", mode)])? == 1.0)
}

/// Returns for how long evicting calls were observed, in seconds.
fn observed(scrape: &Scrape) -> anyhow::Result<f64> {
    scrape.sum("evictscope_observed_seconds_total", &[("kind", "evicting")])
}

/// Returns for how long the agent's thread for a server had work but no CPU, in seconds.
fn waited(agent: &Agent, redis: &Redis) -> anyhow::Result<f64> {
    let thread = agent.thread(&format!("server {}", redis.name()))?;
    Ok(SchedulerTimes::of(agent.pid(), thread)?.waiting.as_secs_f64())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_cache_that_does_little_but_evict_is_sampled_within_the_budget() -> anyhow::Result<()> {
    process::comes_before_other_sessions()?;
    let redis = Redis::private(&["--maxmemory", "20mb"])?;
    redis.comes_first()?;
    redis.write_keys(100_000)?;
    let agent = Agent::watching(&redis, &["--overhead-budget", "1%"])?;
    let load = redis.load("-t set -d 500 -r 10000000 -c 20 -P 50 -n 100000000")?;
    load.comes_first()?;
    until_true("it is sampled", || {
        load.must_be_alive()?;
        mode_is(&agent.reading(&redis)?, "sampled")
    })?;
    // What was spent before is in the mean of the first ten seconds.
    let budget = agent.reading(&redis)?.sum("evictscope_overhead_budget_ratio", &[])?;
    let mut past = vec![(Instant::now(), waited(&agent, &redis)?, 0.0)];
    past[0].2 = observed(&agent.reading(&redis)?)?;
    for _ in 0..READINGS {
        std::thread::sleep(Duration::from_secs(1));
        load.must_be_alive()?;
        let scrape = agent.reading(&redis)?;
        past.push((Instant::now(), waited(&agent, &redis)?, observed(&scrape)?));
        ensure!(mode_is(&scrape, "sampled")?, "it is not sampled");
        let is_saturated = scrape.sum("evictscope_phase", &[("phase", "saturated")])? == 1.0;
        ensure!(is_saturated, "the phase is lost between two samples");
        let ratio = scrape.sum("evictscope_overhead_ratio", &[])?;
        let now = past[past.len() - 1];
        let before = past.iter().rev().find(|earlier| (now.0 - earlier.0).as_secs_f64() > WINDOW);
        let Some(before) = before else { continue };
        // Probes stay on for as long as the thread that would take them off waits for a CPU.
        let late = (now.1 - before.1) / WINDOW;
        let observed = (now.2 - before.2) / (now.0 - before.0).as_secs_f64();
        let most = budget + late * ratio / observed;
        println!("cost {ratio:.5}, at most {most:.5}; observed {observed:.4} of the time");
        ensure!(ratio < most, "{ratio} of the main thread, of {most}");
        ensure!(observed < 1.0, "it is observed all the time");
    }
    drop(load);
    until_true("it is observed all the time again", || Ok(!mode_is(&agent.reading(&redis)?, "sampled")?))
}

/// Writes `at_once` new keys, `rounds` times, each time at least `interval` after the last.
fn write(redis: &Redis, at_once: usize, interval: Duration, rounds: u32) -> anyhow::Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    let writer = client.local_addr()?.port();
    let mut answers = vec![0; at_once * "+OK\r\n".len()];
    for round in 0..rounds {
        std::thread::sleep(interval);
        let keys = (0..at_once).map(|key| format!("SET {writer}:{round}:{key} {key:0>VALUE$}\r\n"));
        client.write_all(keys.collect::<String>().as_bytes())?;
        client.read_exact(&mut answers)?;
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_cache_that_evicts_now_and_then_is_observed_all_the_time() -> anyhow::Result<()> {
    let redis = Redis::private(&["--maxmemory", "5mb"])?;
    redis.write_keys(30_000)?;
    let outside = Instant::now();
    let agent = Agent::watching(&redis, &["--overhead-budget", "1%"])?;
    // The clients that filled it are gone, and so is what they took of the limit.
    write(&redis, 60, Duration::ZERO, 100)?;
    let first = agent.settled_reading(&redis)?;
    let inside = Instant::now();
    // At most 600 a second.
    write(&redis, 60, Duration::from_millis(100), 60)?;
    let least = inside.elapsed().as_secs_f64();
    let last = agent.settled_reading(&redis)?;
    let most = outside.elapsed().as_secs_f64();
    ensure!(!mode_is(&last, "sampled")?, "it is sampled");
    let seen = observed(&last)? - observed(&first)?;
    ensure!((least..=most).contains(&seen), "{seen} s, not {least} to {most}");
    let grown = |metric, labels: &[_]| anyhow::Ok(last.sum(metric, labels)? - first.sum(metric, labels)?);
    let calls = grown("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    let keys = grown("evictscope_evicted_keys_total", &[])?;
    ensure!(keys > 1_000.0, "only {keys} keys");
    ensure!((calls / keys - 1.0).abs() < TOLERANCE, "{calls} and {keys}");
    Ok(())
}
