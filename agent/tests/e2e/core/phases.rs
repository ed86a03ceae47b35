//! Phases and bursts of a real server, against when its own counter of evicted keys grows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, burst::Burst, process, redis::Redis};

use crate::bursts::{CLOCK, agreed, fill, follow, is_in, without_pause};

/// Compares all that the agent says about a server under `load` with what the server says.
fn agrees(load: impl Fn(&Redis, &AtomicBool) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let redis = Redis::own(&[])?;
    fill(&redis)?;
    let begun = Instant::now();
    // Sampled, it would know the ends of bursts only by its readings.
    let agent = Agent::watching(&redis, &["--probe-mode=evicting-only"])?;
    let found = Instant::now();
    let scrape = agent.settled_reading(&redis)?;
    ensure!(is_in(&scrape, "not_saturated")?, "not in not_saturated");
    let bursts = agent.bursts(&redis)?;
    ensure!(bursts.is_empty(), "a burst too early: {bursts:?}");

    let evicted = redis.info("evicted_keys")?;
    let seen = follow(&agent, &redis, load)?;
    let bursts = agreed(&agent, &redis, &seen)?;

    let before = Instant::now();
    let scrape = agent.settled_reading(&redis)?;
    let all = scrape.sum("evictscope_phase_seconds_total", &[])?;
    let (least, most) = (before - found, begun.elapsed());
    let is_right = (least.as_secs_f64()..=most.as_secs_f64()).contains(&all);
    ensure!(is_right, "{all} s in all phases after {least:?} to {most:?}");

    let of_all = |value: fn(&Burst) -> Option<f64>| bursts.iter().map(value).sum::<Option<f64>>();
    let evicted = redis.info("evicted_keys")? - evicted;
    let keys = of_all(|burst| burst.evicted_keys);
    ensure!(keys == Some(evicted), "{evicted} keys: {bursts:?}");
    let calls = scrape.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    let of_bursts = of_all(|burst| burst.evicting_calls);
    ensure!(of_bursts == Some(calls), "{calls} evicting calls: {bursts:?}");
    let counted = scrape.sum("evictscope_bursts_total", &[])?;
    ensure!(counted == bursts.len() as f64, "{counted} on /metrics");
    let saturated = [("phase", "saturated")];
    let spent = scrape.sum("evictscope_phase_seconds_total", &saturated)?;
    let lasted: f64 = bursts.iter().map(|burst| burst.duration_seconds).sum();
    let is_right = (spent - lasted).abs() < CLOCK * bursts.len() as f64;
    ensure!(is_right, "{spent} s saturated, bursts of {lasted} s");
    let open = scrape.sum("evictscope_burst_open", &[])?;
    ensure!(open == 0.0, "a burst is still open");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_is_found_where_the_server_says_it_was() -> anyhow::Result<()> {
    agrees(without_pause)
}

/// A cache that writes some hundred keys and then pauses is in or out of `saturated`, depending on its pauses.
#[test]
#[ignore = "needs root and BPF"]
fn what_a_calm_cache_does_is_told_as_it_was() -> anyhow::Result<()> {
    agrees(|redis, ends| {
        for keys in 10_000_000_u32.. {
            if ends.load(Ordering::Relaxed) {
                break;
            }
            // redis-benchmark's random numbers begin with time ^ pid, which may repeat after some seconds. The keys
            // would then exist already, and nothing would be evicted. Another number of keys gives other keys.
            let load = format!("-t set -d 500 -r {keys} -c 1 -n 200");
            process::answer_of(&mut redis.benchmark(&load))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}
