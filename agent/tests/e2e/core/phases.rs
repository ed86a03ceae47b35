//! Phases and bursts of a real server, against when its own counter of evicted keys grows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use evictscope_model::Burst;
use evictscope_model::answers::ListedBurst;
use evictscope_testkit::process;
use evictscope_testkit::wait::unix_time;

use crate::prelude::*;

const PAUSE: Duration = Duration::from_millis(5);

/// The times of the two readings between which `evicted_keys` grew, in seconds since 1970, whenever it did.
#[derive(Default)]
pub struct Evictions(Vec<(f64, f64)>);

impl Evictions {
    fn watch(redis: &Redis, goes_on: impl Fn() -> bool) -> anyhow::Result<Self> {
        let mut seen = Self::default();
        let mut before = (unix_time()?, redis.info("evicted_keys")?);
        while goes_on() {
            thread::sleep(PAUSE);
            let asked = unix_time()?;
            let keys = redis.info("evicted_keys")?;
            if keys > before.1 {
                seen.0.push((before.0, unix_time()?));
            }
            before = (asked, keys);
        }
        Ok(seen)
    }

    /// Returns how many bursts these are, at least and at most, if one ends with this many seconds without an eviction.
    fn bursts(&self, quiet: f64) -> (usize, usize) {
        let pauses = self.0.windows(2).filter_map(|pair| match pair {
            [(from, to), (next_from, next_to)] => Some((next_from - to, next_to - from)),
            _ => None,
        });
        let first = usize::from(!self.0.is_empty());
        pauses.fold((first, first), |(least, most), (shortest, longest)| {
            (least + usize::from(shortest > quiet), most + usize::from(longest > quiet))
        })
    }
}

/// Compares all that the agent says about a server under `load` with what the server says.
fn agrees(load: impl Fn(&Redis, &AtomicBool) -> anyhow::Result<()> + Sync) -> anyhow::Result<()> {
    let redis = Redis::private(&[])?;
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

    let of_all =
        |value: fn(&Burst) -> Option<f64>| bursts.iter().map(|listed| value(&listed.burst)).sum::<Option<f64>>();
    let evicted = redis.info("evicted_keys")? - evicted;
    let keys = of_all(|burst| Some(burst.evicted_keys? as f64));
    ensure!(keys == Some(evicted), "{evicted} keys: {bursts:?}");
    let calls = scrape.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    ensure!(of_all(|burst| Some(burst.evicting_calls as f64)) == Some(calls), "{calls} evicting calls: {bursts:?}");
    let counted = scrape.sum("evictscope_bursts_total", &[])?;
    ensure!(counted == bursts.len() as f64, "{counted} on /metrics");
    let saturated = [("phase", "saturated")];
    let spent = scrape.sum("evictscope_phase_seconds_total", &saturated)?;
    let lasted: f64 = bursts.iter().map(|listed| listed.burst.duration.as_secs_f64()).sum();
    ensure!((spent - lasted).abs() < CLOCK * bursts.len() as f64, "{spent} s saturated, bursts of {lasted} s");
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
            process::answer_of(&mut redis.benchmark(&format!("-t set -d 500 -r {keys} -c 1 -n 200")))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}

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
            until_true("the burst is over", || is_in(&agent.settled_reading(redis)?, "not_saturated"))
        });
        is_over.store(true, Ordering::Relaxed);
        over.and(seen.join().map_err(|_| anyhow!("the observer panicked"))?)
    })
}

/// Returns the agent's bursts, which must be those of the server: the same number, from its first to its last eviction.
pub fn agreed(agent: &Agent, redis: &Redis, seen: &Evictions) -> anyhow::Result<Vec<ListedBurst>> {
    let bursts = agent.bursts(redis)?;
    let (least, most) = seen.bursts(QUIET);
    println!("{} bursts, by the server {least} to {most}", bursts.len());
    ensure!((least..=most).contains(&bursts.len()), "{bursts:?}");
    let (first, last) = (bursts.first(), bursts.last());
    let (first, last) = first.zip(last).context("no burst")?;
    for (at, bounds) in [(first.start, seen.0.first()), (last.end, seen.0.last())] {
        let at = at.context("no time")?.seconds();
        let (from, to) = bounds.context("no evictions")?;
        println!("{at} in {from} to {to}");
        ensure!((from - CLOCK..=to + CLOCK).contains(&at), "{at} is not in {from} to {to}: {bursts:?}");
    }
    Ok(bursts)
}

#[test]
fn only_what_is_certain_counts_as_one_or_two() {
    let bursts = |grown: &[(f64, f64)]| Evictions(grown.to_vec()).bursts(1.0);
    assert_eq!(bursts(&[]), (0, 0));
    assert_eq!(bursts(&[(0.0, 0.1), (0.1, 0.9)]), (1, 1));
    assert_eq!(bursts(&[(0.0, 0.2), (0.2, 1.1)]), (1, 2));
    assert_eq!(bursts(&[(0.0, 0.2), (1.3, 1.4)]), (2, 2));
}
