//! What a record has, against what the server says and what is on /metrics.

use anyhow::{Context as _, bail, ensure};
use evictscope_abi::bounds;
use evictscope_records::explain::{CauseKind, explain};
use evictscope_records::profile::Profile;
use evictscope_records::{Listed, Occasion, Record, Store, Summary};
use evictscope_telemetry::{CallResult, Moment};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::redis::{EVICTING_WITHOUT_PAUSE, Redis};
use evictscope_testkit::wait::{unix_time, until, until_true};
use rustix::process::Signal;

use crate::core::phases::{fill, is_in};

/// For how long the server must be stalled, in seconds: one is enough for a record.
const STALLED: f64 = 2.0;
/// How far `used_memory` may be outside the range that was read, bytes: in a turn of its event loop the server reads up
/// to 16 KiB from each of the load's 900 clients, and releases that again.
const MEMORY_SLACK: f64 = (16 << 20) as f64;

/// What the server said, and between which times since 1970, in seconds.
struct Said {
    asked: f64,
    answered: f64,
    used_memory: f64,
    commands: f64,
    evicted_keys: f64,
}

impl Said {
    fn ask(redis: &Redis) -> anyhow::Result<Self> {
        let asked = unix_time()?;
        let info = redis.all_info()?;
        Ok(Self {
            asked,
            answered: unix_time()?,
            used_memory: info.number("used_memory")?,
            commands: info.number("total_commands_processed")?,
            evicted_keys: info.number("evicted_keys")?,
        })
    }

    /// Compares it with the moments around it; returns whether there are any.
    fn compare(&self, moments: &[Moment]) -> anyhow::Result<bool> {
        let seconds = |moment: &Moment| moment.unix_us() as f64 / 1e6;
        // A moment was read before the next one began.
        let before = moments.partition_point(|moment| seconds(moment) <= self.asked);
        let after = moments.partition_point(|moment| seconds(moment) < self.answered);
        let (Some(before), true) = (before.checked_sub(2), after < moments.len()) else { return Ok(false) };
        let around = &moments[before..=after];
        let (first, last) = (&moments[before], &moments[after]);
        let number = |value: Option<u64>| value.map(|value| value as f64).context("not known");
        for (what, said, first, last) in [
            ("commands", self.commands, number(first.commands)?, number(last.commands)? + 1.0),
            ("evicted keys", self.evicted_keys, number(first.evicted_keys)?, number(last.evicted_keys)?),
        ] {
            ensure!((first..=last).contains(&said), "{what}: {said} is not in {first} to {last}");
        }
        let memory = around.iter().map(|moment| number(moment.used_memory)).collect::<anyhow::Result<Vec<f64>>>()?;
        let lowest = memory.iter().copied().fold(f64::MAX, f64::min) - MEMORY_SLACK;
        let highest = memory.into_iter().fold(0.0, f64::max) + MEMORY_SLACK;
        let said = self.used_memory;
        ensure!((lowest..=highest).contains(&said), "used_memory: {said} is not in {lowest} to {highest}");
        Ok(true)
    }
}

/// Waits for a record that an agent keeps, and returns it.
pub fn record_of(agent: &Agent, is_wanted: impl Fn(&Summary) -> bool) -> anyhow::Result<Record> {
    let store = Store::at(agent.state());
    until("there is a record", || {
        let found = store.list()?.into_iter().filter_map(|listed| listed.summary.ok()).find(&is_wanted);
        Ok(found.map(|found| store.read(&found.id)).transpose()?)
    })
}

/// Has a server stalled by evictions for two seconds, and no longer. Returns it, the agent that watches it, and what it
/// said meanwhile.
fn stalled_for_two_seconds() -> anyhow::Result<(Redis, Agent, Vec<Said>)> {
    let redis = Redis::private(&[])?;
    fill(&redis)?;
    stalled_by(redis, EVICTING_WITHOUT_PAUSE)
}

/// Has this load stall a server, as [`stalled_for_two_seconds`] does.
fn stalled_by(redis: Redis, load: &str) -> anyhow::Result<(Redis, Agent, Vec<Said>)> {
    let agent = Agent::watching(&redis, &["--probe-mode=evicting-only"])?;
    let load = redis.load(load)?;
    let mut said = Vec::new();
    until_true("clients are stalled", || {
        said.push(Said::ask(&redis)?);
        Ok(agent.reading(&redis)?.sum("evictscope_stall_seconds_total", &[])? >= STALLED)
    })?;
    drop(load);
    Ok((redis, agent, said))
}

#[test]
#[ignore = "needs root and BPF"]
fn a_record_has_what_the_server_and_metrics_say() -> anyhow::Result<()> {
    let (redis, agent, all_said) = stalled_for_two_seconds()?;
    // Until then it works through what was unread when the load ended, however long it has no CPU.
    until_true("the server has closed the connections of the load", || Ok(redis.info("connected_clients")? <= 1.0))?;
    let scrape = until("the burst is over", || {
        let scrape = agent.settled_reading(&redis)?;
        let is_over = is_in(&scrape, "not_saturated")? && !agent.bursts(&redis)?.is_empty();
        Ok(is_over.then_some(scrape))
    })?;
    let evicting = [("kind", "evicting")];
    let calls = scrape.sum("evictscope_eviction_calls_total", &evicting)?;
    let longest = scrape.sum("evictscope_eviction_call_longest_seconds", &[])?;
    let names = agent.get("/api/v1/bursts")?;
    // A record that waits is kept when the agent ends.
    agent.end(Signal::TERM)?;

    let record = record_of(&agent, |_| true)?;
    let moments = &record.moments;
    ensure!(moments.is_sorted_by(|moment, next| moment.unix_us() < next.unix_us()), "moments are not in order");
    match record.occasion {
        Occasion::Burst => ensure!(names.contains(record.id.as_str()), "{} is not in {names}", record.id),
        Occasion::Stall => ensure!(names.contains(r#""record":null"#), "{names}"),
        occasion => bail!("a record of a {occasion}"),
    }
    let stall = record.began_us..=record.ended_us;
    let within = moments.iter().filter(|moment| stall.contains(&moment.unix_us()));
    println!("{} moments, {} of them in {stall:?}", moments.len(), within.count());
    let mut compared = 0;
    for said in &all_said {
        compared += usize::from(said.compare(moments)?);
    }
    println!("{compared} of {} answers are within the record", all_said.len());
    ensure!(compared > 0, "none could be compared");

    let last = moments.last().context("no moments")?;
    ensure!(last.evicting_calls as f64 == calls, "{calls} calls: {last:?}");
    let mut by_bucket = vec![0; bounds::INNER_NS.buckets()];
    for (bucket, count) in record.latencies.iter().flat_map(|second| &second.counts) {
        by_bucket[usize::from(*bucket)] += count;
    }
    let all: u64 = by_bucket.iter().sum();
    ensure!(all as f64 == calls, "{all} durations of {calls} calls");
    if let Ok(profile) = &record.profile {
        check_times(profile)?;
    }
    check_slowest(&record, &by_bucket, longest)
}

/// Compares the times of samples with their number: at `hz` samples a second of CPU time they cannot be closer together
/// than that, except for those at which the kernel finds the rate.
fn check_times(profile: &Profile) -> anyhow::Result<()> {
    let mut times: Vec<u32> = profile.stacks.iter().flat_map(|stack| &stack.at_ms).copied().collect();
    times.sort_unstable();
    let samples = profile.samples();
    ensure!(times.len() as u64 == samples, "{samples}: {times:?}");
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return Ok(()) };
    let (first, last) = (u64::from(*first), u64::from(*last));
    ensure!(2 * (last - first) >= (samples - 1) * 1_000 / u64::from(profile.hz), "{samples}: {times:?}");
    ensure!(last * 1_000 <= profile.length_us, "{last} ms of {} µs", profile.length_us);
    println!("{samples} samples from {first} to {last} ms");
    Ok(())
}

/// Compares the slowest calls with the histogram, and with the longest call.
fn check_slowest(record: &Record, by_bucket: &[u64], longest: f64) -> anyhow::Result<()> {
    let slowest = &record.slowest;
    ensure!(slowest.len() == 50, "{} slow calls", slowest.len());
    ensure!(slowest.is_sorted_by(|call, next| call.duration_ns >= next.duration_ns), "slow calls are not in order");
    let first = slowest[0].duration_ns as f64 / 1e9;
    ensure!((first - longest).abs() < 1e-9, "{first} s, but {longest} s");
    let ends = (record.moments.first(), record.moments.last());
    let (Some(first), Some(last)) = ends else { bail!("no moments") };
    for (number, call) in (1..).zip(slowest) {
        // The histogram includes their waits for a CPU, so as many calls took this long or longer.
        let counted: u64 = by_bucket[bounds::INNER_NS.bucket(call.duration_ns)..].iter().sum();
        ensure!(counted >= number, "not counted: call {number}, {call:?}");
        let is_within = (first.unix_us()..=last.unix_us()).contains(&call.unix_us);
        ensure!(is_within && call.goal.is_some(), "{call:?}");
        ensure!(matches!(call.result, CallResult::Ok | CallResult::Running), "{call:?}");
    }
    Ok(())
}

/// For each key, ten thousand samples are taken of each of 64 databases. The server and the samples say so.
#[test]
#[ignore = "needs root and BPF"]
fn slow_evicting_calls_are_explained_by_what_they_do() -> anyhow::Result<()> {
    let redis = Redis::private(&["--databases", "64", "--maxmemory-samples", "10000"])?;
    let fill = "for db=0,63 do redis.call('select',db) for i=1,5000 do redis.call('set','key:'..i,i) end end";
    redis.cli(&["eval", fill, "0"])?;
    redis.config_set("maxmemory", &format!("{:.0}", redis.info("used_memory")? + 2e6))?;
    let (redis, agent, _) = stalled_by(redis, "-t set -d 500 -r 10000000 -c 16 -n 100000000")?;
    agent.end(Signal::TERM)?;
    let mut record = record_of(&agent, |summary| summary.server == redis.name())?;
    let [as_it_is, as_advised] = [Some(10_000), Some(5)];
    for (samples, is_advised) in [(record.configuration.maxmemory_samples, true), (as_advised, false)] {
        ensure!(!is_advised || samples == as_it_is, "{samples:?}");
        record.configuration.maxmemory_samples = samples;
        let explained = explain(&record);
        println!("{explained:#?}");
        // A busy machine is another one.
        ensure!(explained.causes.iter().any(|cause| cause.kind == CauseKind::Choosing), "{explained:#?}");
        ensure!(explained.help.contains("Set maxmemory-samples to 5") == is_advised, "{}", explained.help);
    }
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn the_record_of_a_server_that_is_killed_is_kept_at_once() -> anyhow::Result<()> {
    let (redis, agent, _) = stalled_for_two_seconds()?;
    redis.kill()?;
    let store = Store::at(agent.state());
    let all = until("there is a record of its end", || {
        let all = store.list()?;
        let is_end = |listed: &Listed| listed.summary.as_ref().is_ok_and(|of| of.occasion == Occasion::Ended);
        Ok(Some(all).filter(|all| all.iter().any(is_end)))
    })?;
    let mut occasions = Vec::new();
    for listed in all {
        let summary = listed.summary.map_err(anyhow::Error::msg)?;
        let record = store.read(&summary.id)?;
        let last = record.moments.last().context("no moments")?;
        ensure!(last.evicting_calls > 0, "{last:?}");
        occasions.push(record.occasion.to_string());
    }
    ensure!(occasions.iter().any(|occasion| occasion == "stall"), "{occasions:?}");
    Ok(())
}
