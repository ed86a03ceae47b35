//! The share of expired keys that a server holds, as the agent samples it, against what was written.

use std::time::Duration;

use anyhow::ensure;
use evictscope_testkit::{
    agent::Agent,
    redis::Redis,
    wait::{until, until_true},
};

use crate::on_servers::{ALL, on_each};

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
        let redis = Redis::own_of(program, &["--maxmemory", "0"])?;
        let write = format!(
            "for i = 1, {LASTING} do redis.call('SET', 'a' .. i, i) end \
             for i = 1, {LIVING} do redis.call('SET', 'b' .. i, i, 'EX', 1000) end \
             for i = 1, {EXPIRED} do redis.call('SET', 'c' .. i, i, 'PXAT', ARGV[1]) end"
        );
        let now = redis.cli(&["time"])?;
        let seconds: u64 = now.lines().next().unwrap_or_default().trim().parse()?;
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
