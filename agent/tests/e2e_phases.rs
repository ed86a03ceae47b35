//! End to end: phases and bursts of a real server.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use evictscope_testkit::{agent::Agent, evictions::Evictions, process, redis::Redis, wait::within};

/// A burst is over this many seconds after its last evicting call (DESIGN section 7).
const QUIET: f64 = 1.0;

/// Starts a server and fills it to just below its limit. Its number of keys is well between two powers of 2: near one,
/// the hash table grows, makes the server evict a lot, and is freed, and then nothing is evicted for a while.
fn nearly_full() -> anyhow::Result<Redis> {
    let redis = Redis::start(&[])?;
    redis.write_keys(90_000)?;
    let used = redis.info("used_memory")?;
    redis.config_set("maxmemory", &format!("{:.0}", used + 4e6))?;
    Ok(redis)
}

fn check_phase_seconds(agent: &Agent, redis: &Redis, found: Instant) -> anyhow::Result<()> {
    let all = agent
        .reading(redis)?
        .sum("evictscope_phase_seconds_total", &[])?;
    let passed = found.elapsed().as_secs_f64();
    let is_right = (all - passed).abs() <= 0.01 * passed + 0.1;
    ensure!(is_right, "{all} s in all phases after {passed} s");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_burst_is_found_where_the_server_says_it_was() -> anyhow::Result<()> {
    let redis = nearly_full()?;
    let agent = Agent::start(&[])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    let found = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let bursts = agent.bursts(&redis)?;
    ensure!(bursts.is_empty(), "a burst too early: {bursts:?}");
    let phase = |phase| {
        let scrape = agent.reading(&redis)?;
        scrape.sum("evictscope_phase", &[("phase", phase)])
    };
    ensure!(phase("not_saturated")? == 1.0, "not in not_saturated");

    let evicted = redis.info("evicted_keys")?;
    let options = "-t set -d 500 -r 10000000 -c 8 -n 100000000";
    let load = redis.load(&options.split(' ').collect::<Vec<_>>())?;
    let first = Evictions::watch(&redis, Duration::from_secs(4))?
        .first
        .context("no evictions")?;
    ensure!(phase("saturated")? == 1.0, "not in saturated");
    let watching = std::thread::scope(|scope| {
        let watching = scope.spawn(|| Evictions::watch(&redis, Duration::from_secs(3)));
        std::thread::sleep(Duration::from_millis(500));
        drop(load);
        watching.join()
    });
    let last = watching.map_err(|_| anyhow::anyhow!("the watching thread panicked"))??;
    let last = last.last.context("no evictions at the end")?;
    std::thread::sleep(Duration::from_secs(4));

    let found_bursts = agent.bursts(&redis)?;
    let [burst] = &found_bursts[..] else {
        anyhow::bail!("not one burst: {found_bursts:?}");
    };
    // The moment lies between two readings of the test, or at most 200 ms outside.
    for (at, (from, to)) in [(burst.start, first), (burst.end, last)] {
        let is_right = (from - 0.2..=to + 0.2).contains(&at);
        ensure!(is_right, "{at} is not in {from} to {to}: {burst:?}");
    }
    let evicted = redis.info("evicted_keys")? - evicted;
    let seen = burst.evicted_keys;
    ensure!(seen == Some(evicted), "{evicted} keys: {burst:?}");
    let scrape = agent.reading(&redis)?;
    let calls = scrape.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    let seen = burst.evicting_calls;
    ensure!(seen == Some(calls), "{calls} evicting calls: {burst:?}");
    let bursts = scrape.sum("evictscope_bursts_total", &[])?;
    ensure!(bursts == 1.0, "{bursts} bursts on /metrics");
    let saturated = [("phase", "saturated")];
    let spent = scrape.sum("evictscope_phase_seconds_total", &saturated)?;
    let lasted = burst.duration_seconds;
    let is_right = (spent - lasted).abs() < 0.001;
    ensure!(is_right, "{spent} s saturated, a burst of {lasted} s");
    let open = scrape.sum("evictscope_burst_open", &[])?;
    ensure!(open == 0.0, "the burst is still open");
    check_phase_seconds(&agent, &redis, found)
}

/// Writes some thousand keys a second from one client until `stop`, with pauses of some hundredths of a second.
fn calm_load(redis: &Redis, stop: &AtomicBool) -> anyhow::Result<()> {
    for keys in 10_000_000_u32.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // redis-benchmark's random numbers begin with time ^ pid, which may repeat after some seconds. The keys would
        // then exist already, and nothing would be evicted. Another number of keys gives other keys.
        let keys = keys.to_string();
        let options = [
            "-t", "set", "-d", "500", "-r", &keys, "-c", "1", "-n", "200",
        ];
        process::answer_of(&mut redis.benchmark(&options))?;
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Waits until the server is in the phase `saturated`, and returns how often it entered that.
fn entries_once_saturated(agent: &Agent, redis: &Redis) -> anyhow::Result<f64> {
    let labels = [("phase", "saturated")];
    let (entries, _) = within(Duration::from_secs(3), "saturated", || {
        let scrape = agent.reading(redis)?;
        let entries = scrape.sum("evictscope_bursts_total", &[])?
            + scrape.sum("evictscope_burst_open", &[])?;
        Ok((scrape.sum("evictscope_phase", &labels)? == 1.0).then_some(entries))
    })?;
    Ok(entries)
}

/// An ordinary cache has a few thousand commands a second, each of which evicts, for ever.
#[test]
#[ignore = "needs root and BPF"]
fn a_calm_cache_that_always_evicts_is_no_incident() -> anyhow::Result<()> {
    let redis = nearly_full()?;
    redis.write_keys(60_000)?;
    let agent = Agent::start(&[])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    let found = Instant::now();
    let stop = AtomicBool::new(false);
    let (seen, entries) = std::thread::scope(|scope| {
        let load = scope.spawn(|| calm_load(&redis, &stop));
        let seen = Evictions::watch(&redis, Duration::from_secs(8));
        let entries = entries_once_saturated(&agent, &redis);
        stop.store(true, Ordering::Relaxed);
        let load = load.join();
        load.map_err(|_| anyhow::anyhow!("the load panicked"))??;
        anyhow::Ok((seen?, entries?))
    })?;
    // A server that made room in another way, or that had no requests for a second, did stop evicting.
    let count = |long: fn(&&(f64, f64)) -> bool| seen.pauses.iter().filter(long).count() as f64;
    let least = 1.0 + count(|(at_least, _)| *at_least > QUIET + 0.2);
    let most = 1.0 + count(|(_, at_most)| *at_most > QUIET);
    ensure!(
        (least..=most).contains(&entries),
        "entered {entries} times, not {least} to {most}: {:?}",
        agent.bursts(&redis)?
    );
    let longest = seen.pauses.iter().map(|pause| pause.1);
    println!("longest pause {:.3} s", longest.fold(0.0, f64::max));
    // The time since the last evicting call belongs to no phase until it is quiet.
    std::thread::sleep(Duration::from_secs(4));
    check_phase_seconds(&agent, &redis, found)?;
    for burst in agent.bursts(&redis)? {
        ensure!(burst.kind == "plain", "{burst:?}");
    }
    let scrape = agent.reading(&redis)?;
    let incidents = scrape.sum("evictscope_bursts_total", &[("kind", "self_amplifying")])?;
    ensure!(incidents == 0.0, "{incidents} incidents");
    Ok(())
}
