//! End to end: whatever a server does, the probes cost it no more than the budget, and what is counted
//! meanwhile gives the right rates.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use evictscope_testkit::{agent::Agent, redis::Redis, scrape::Scrape};

/// From the third second of a load on, the budget holds.
const SETTLE: Duration = Duration::from_secs(3);
/// For how long the rates are compared.
const COMPARED: u32 = 12;
/// By how much rates per observed second may be off.
const TOLERANCE: f64 = 0.1;
/// How many keys are written a second where evicting calls are sampled. Probes on as many calls would cost several times
/// the budget.
const PACE: f64 = 25_000.0;
/// A load that does not keep the pace to this part of it has not the same rate all the time, so the rate in the part of
/// it that is observed says nothing.
const KEPT: f64 = 0.95;
/// How often the load may fail to.
const ATTEMPTS: u32 = 5;
/// Bytes of each value that is written.
const VALUE: usize = 500;

/// What is compared: evicting calls, for how long they were observed, and evicted keys.
struct Counts {
    at: Instant,
    calls: f64,
    observed: f64,
    keys: f64,
}

impl Counts {
    fn of(scrape: &Scrape) -> anyhow::Result<Self> {
        let evicting = [("kind", "evicting")];
        Ok(Self {
            at: Instant::now(),
            calls: scrape.sum("evictscope_eviction_calls_total", &evicting)?,
            observed: scrape.sum("evictscope_observed_seconds_total", &evicting)?,
            keys: scrape.sum("evictscope_evicted_keys_total", &[])?,
        })
    }

    /// Returns calls per observed second, keys a second, and the share of the time that was observed.
    fn rates_until(&self, later: &Self) -> (f64, f64, f64) {
        let seconds = (later.at - self.at).as_secs_f64();
        let observed = later.observed - self.observed;
        let calls = (later.calls - self.calls) / observed;
        (
            calls,
            (later.keys - self.keys) / seconds,
            observed / seconds,
        )
    }
}

/// Returns how many evicting calls the server makes for each key that it evicts, by an agent that observes all of
/// them.
fn calls_by_keys(redis: &Redis) -> anyhow::Result<f64> {
    let agent = Agent::start(&["--probe-mode", "evicting-only"])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    let first = Counts::of(&agent.reading(redis)?)?;
    std::thread::sleep(SETTLE);
    let last = Counts::of(&agent.reading(redis)?)?;
    Ok((last.calls - first.calls) / (last.keys - first.keys))
}

/// Writes `at_once` new keys, `rounds` times, each `interval` after the one before. What is late is made up for, so the
/// rate is the same in each few milliseconds: that in which calls are observed is that of all the time.
fn write_at_a_pace(
    redis: &Redis,
    at_once: usize,
    interval: Duration,
    rounds: u32,
) -> anyhow::Result<()> {
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    let writer = client.local_addr()?.port();
    let mut answers = vec![0; at_once * "+OK\r\n".len()];
    let begun = Instant::now();
    for round in 0..rounds {
        std::thread::sleep((interval * round).saturating_sub(begun.elapsed()));
        let keys = (0..at_once).map(|key| format!("SET {writer}:{round}:{key} {key:0>VALUE$}\r\n"));
        client.write_all(keys.collect::<String>().as_bytes())?;
        client.read_exact(&mut answers)?;
    }
    Ok(())
}

fn mode_is(scrape: &Scrape, mode: &str) -> anyhow::Result<bool> {
    Ok(scrape.sum("evictscope_probe_mode", &[("mode", mode)])? == 1.0)
}

#[test]
#[ignore = "needs root and BPF"]
fn a_cache_that_does_little_but_evict_is_sampled_within_the_budget() -> anyhow::Result<()> {
    let redis = Redis::start(&["--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"])?;
    redis.write_keys(300_000)?;
    let (is_judged, has_been_judged) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let redis = &redis;
        // For each key that is written another one goes, until that has been judged.
        let load = scope.spawn(move || {
            while has_been_judged.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let interval = Duration::from_millis(1);
                write_at_a_pace(redis, (PACE / 1_000.0) as usize, interval, 1_000)?;
            }
            anyhow::Ok(())
        });
        let judged = is_sampled_within_the_budget(redis);
        drop(is_judged);
        let written = load.join().map_err(|_| anyhow!("the load panicked"))?;
        written.and(judged)
    })
}

fn is_sampled_within_the_budget(redis: &Redis) -> anyhow::Result<()> {
    let exact = calls_by_keys(redis)?;
    let agent = Agent::start(&["--overhead-budget", "1%"])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    std::thread::sleep(SETTLE);
    for _ in 0..ATTEMPTS {
        let first = Counts::of(&agent.reading(redis)?)?;
        for _ in 0..COMPARED {
            std::thread::sleep(Duration::from_secs(1));
            is_within_the_budget(&agent.reading(redis)?)?;
        }
        let last = Counts::of(&agent.reading(redis)?)?;
        let (calls, keys, share) = first.rates_until(&last);
        println!(
            "{calls:.0} evicting calls per observed second, {:.0} exactly; observed {:.2} % of the time",
            keys * exact,
            share * 100.0
        );
        if keys > PACE * KEPT {
            let off = calls / keys / exact - 1.0;
            ensure!(off.abs() < TOLERANCE, "off by {:.1} %", off * 100.0);
            return Ok(());
        }
        println!("but the load fell behind: {keys:.0} evicted keys a second");
    }
    bail!("this machine is too busy for {PACE} keys a second")
}

fn is_within_the_budget(scrape: &Scrape) -> anyhow::Result<()> {
    ensure!(mode_is(scrape, "sampled")?, "it is not sampled");
    let ratio = scrape.sum("evictscope_overhead_ratio", &[])?;
    let budget = scrape.sum("evictscope_overhead_budget_ratio", &[])?;
    ensure!(ratio < budget, "{ratio} of the main thread, of {budget}");
    let is_saturated = scrape.sum("evictscope_phase", &[("phase", "saturated")])? == 1.0;
    ensure!(
        is_saturated,
        "the phase is lost while calls are not observed"
    );
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_cache_that_evicts_now_and_then_is_observed_all_the_time() -> anyhow::Result<()> {
    let redis = Redis::start(&["--maxmemory", "5mb", "--maxmemory-policy", "allkeys-lru"])?;
    redis.write_keys(300_000)?;
    let agent = Agent::start(&["--overhead-budget", "1%"])?;
    agent.wait_for(&redis.name(), Duration::from_secs(3))?;
    // The clients that filled it are gone, and so is what they took of the limit.
    write_at_a_pace(&redis, 60, Duration::ZERO, 100)?;
    let first = Counts::of(&agent.settled()?.of_server(redis.port(), redis.pid()))?;
    // 600 a second.
    write_at_a_pace(&redis, 60, Duration::from_millis(100), 60)?;
    let scrape = agent.settled()?.of_server(redis.port(), redis.pid());
    let last = Counts::of(&scrape)?;
    let (calls, keys, share) = first.rates_until(&last);
    println!("{calls:.0} evicting calls per observed second, {keys:.0} evicted keys a second");
    ensure!(!mode_is(&scrape, "sampled")?, "it is sampled");
    ensure!(share > 0.98, "observed {share} of the time");
    ensure!(keys > 400.0, "too little load");
    ensure!((calls / keys - 1.0).abs() < TOLERANCE, "{calls} and {keys}");
    Ok(())
}
