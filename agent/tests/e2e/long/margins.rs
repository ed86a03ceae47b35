//! What is foretold of a server at its limit, against the server's own numbers.

use std::time::Instant;

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, redis::Redis, wait::until};

#[test]
#[ignore = "needs root and BPF"]
fn it_is_foretold_when_memory_is_at_its_limit() -> anyhow::Result<()> {
    const REACHED: &str = "evictscope_maxmemory_reached_seconds";
    let redis = Redis::own(&[])?;
    let agent = Agent::watching(&redis, &[])?;
    // What evictions cost is known from now on.
    redis.write_keys(200_000)?;
    redis.config_set("maxmemory", "4gb")?;
    let (begun, before) = (Instant::now(), redis.info("used_memory")?);
    let scrape = until("memory has grown for a minute", || {
        redis.write_keys(200)?;
        let scrape = agent.scrape()?;
        let is_known = scrape
            .sum("evictscope_evictions_would_add_ratio", &[])
            .is_ok();
        Ok(is_known.then_some(scrape))
    })?;
    let used = redis.info("used_memory")?;
    let growth = (used - before) / begun.elapsed().as_secs_f64();
    let own = (redis.info("maxmemory")? - used) / growth;
    let foretold = scrape.sum(REACHED, &[("estimate", "likely")])?;
    // Not in the same time: it begins when the agent knows that evictions have ended, and ends up to ten seconds before.
    ensure!(
        (own / 2.0..own * 2.0).contains(&foretold),
        "{foretold} s, by INFO {own} s"
    );
    let added = scrape.sum("evictscope_evictions_would_add_ratio", &[])?;
    ensure!(added > 0.0 && added < 1.0, "evictions would add {added}");
    Ok(())
}
