//! A server that begins to evict and stops: what it says about that, against what the agent says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use evictscope_testkit::{
    agent::Agent, burst::Burst, evictions::Evictions, redis::Redis, scrape::Scrape, wait::until_true,
};

/// A burst is over this many seconds after its last evicting call (`QUIET_NS` of the abi).
const QUIET: f64 = 1.0;
/// How far apart two clock readings that count as one may be, plus half of what the API rounds to, in seconds.
pub const CLOCK: f64 = 0.003;
/// The least number of keys to evict.
const EVICTED: f64 = 5_000.0;

/// Fills a server to just below its limit. Its number of keys is well between two powers of 2: near one, the hash table
/// grows and makes the server evict a lot; then it is freed, and nothing is evicted for a while.
pub fn fill(redis: &Redis) -> anyhow::Result<()> {
    redis.write_keys(90_000)?;
    let used = redis.info("used_memory")?;
    redis.config_set("maxmemory", &format!("{:.0}", used + 4e6))
}

/// Sends requests until it is told to end, each after the answer to the previous one.
pub fn without_pause(redis: &Redis, ends: &AtomicBool) -> anyhow::Result<()> {
    let load = redis.load("-t set -d 500 -r 10000000 -c 8 -n 100000000")?;
    while !ends.load(Ordering::Relaxed) {
        load.must_be_alive()?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns whether a server is in this phase.
pub fn is_in(scrape: &Scrape, phase: &str) -> anyhow::Result<bool> {
    Ok(scrape.sum("evictscope_phase", &[("phase", phase)])? == 1.0)
}

/// Runs a load until the server has evicted and the agent has said so, and waits until the agent says that the burst is
/// over. Returns when the server evicted, according to itself.
pub fn follow(
    agent: &Agent,
    redis: &Redis,
    load: impl Fn(&Redis, &AtomicBool) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Evictions> {
    let before = redis.info("evicted_keys")?;
    let (load_ends, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let load = scope.spawn(|| load(redis, &load_ends));
        let seen = scope.spawn(|| Evictions::watch(redis, || !is_over.load(Ordering::Relaxed)));
        let saturated = until_true("the server evicts, and is saturated", || {
            let is_saturated = is_in(&agent.reading(redis)?, "saturated")?;
            let evicted = redis.info("evicted_keys")? - before;
            Ok(is_saturated && evicted >= EVICTED)
        });
        load_ends.store(true, Ordering::Relaxed);
        let ended = load.join().map_err(|_| anyhow!("the load panicked"));
        let over = saturated.and_then(|()| {
            ended??;
            until_true("the burst is over", || {
                let scrape = agent.settled_reading(redis)?;
                is_in(&scrape, "not_saturated")
            })
        });
        is_over.store(true, Ordering::Relaxed);
        let seen = seen.join().map_err(|_| anyhow!("the observer panicked"))?;
        over.and(seen)
    })
}

/// Returns the agent's bursts, which must be those of the server: the same number, from its first to its last eviction.
pub fn agreed(agent: &Agent, redis: &Redis, seen: &Evictions) -> anyhow::Result<Vec<Burst>> {
    let bursts = agent.bursts(redis)?;
    let (least, most) = seen.bursts(QUIET);
    println!("{} bursts, by the server {least} to {most}", bursts.len());
    ensure!((least..=most).contains(&bursts.len()), "{bursts:?}");
    let (first, last) = (bursts.first(), bursts.last());
    let (first, last) = first.zip(last).context("no burst")?;
    for (at, bounds) in [(first.start, seen.first()), (last.end, seen.last())] {
        let (from, to) = bounds.context("no evictions")?;
        println!("{at} in {from} to {to}");
        let is_right = (from - CLOCK..=to + CLOCK).contains(&at);
        ensure!(is_right, "{at} is not in {from} to {to}: {bursts:?}");
    }
    Ok(bursts)
}
