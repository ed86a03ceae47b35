//! What is predicted about a server at its limit, against the server's own numbers.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, redis::Redis, wait::until};

#[test]
#[ignore = "needs root and BPF"]
fn it_is_foretold_when_memory_is_at_its_limit() -> anyhow::Result<()> {
    const REACHED: &str = "evictscope_maxmemory_reached_seconds";
    const ADDED: &str = "evictscope_evictions_would_add_ratio";
    let (full, new) = (Redis::own(&[])?, Redis::own(&["--maxmemory", "4gb"])?);
    new.write_keys(200_000)?;
    let agent = Agent::watching(&full, &[])?;
    agent.watches(&new)?;
    // From now on the cost of evictions on the full server is known.
    full.write_keys(200_000)?;
    full.config_set("maxmemory", "4gb")?;
    let begun = Instant::now();
    let before = [&full, &new].map(|redis| redis.info("used_memory"));
    let servers = [(&full, "here"), (&new, "lab")];
    for ((redis, measured), before) in servers.into_iter().zip(before) {
        let scrape = until("memory has grown for a minute", || {
            // By more than a tenth in a minute would be a fill, however fast this machine is.
            full.write_keys(10)?;
            new.write_keys(10)?;
            sleep(Duration::from_millis(100));
            let scrape = agent.reading(redis)?;
            let is_known = scrape.sum(ADDED, &[]).is_ok();
            Ok(is_known.then_some(scrape))
        })?;
        let used = redis.info("used_memory")?;
        let growth = (used - before?) / begun.elapsed().as_secs_f64();
        let own = (redis.info("maxmemory")? - used) / growth;
        let foretold = scrape.sum(REACHED, &[("estimate", "likely")])?;
        // Not over the same time: the agent's begins when it knows that evictions have ended, and ends up to ten
        // seconds earlier.
        ensure!((own / 2.0..own * 2.0).contains(&foretold), "{foretold} s, by INFO {own} s");
        let added = scrape.sum(ADDED, &[("measured", measured)])?;
        ensure!(added > 0.0 && added < 1.0, "evictions would add {added}");
    }
    Ok(())
}
