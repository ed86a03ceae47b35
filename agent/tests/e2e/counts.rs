//! What agents count about a server, against what it counts itself.

use anyhow::ensure;
use evictscope_testkit::{agent::Agent, redis::Redis};

/// Fails if an agent in every-call mode does not count exactly what a server does until it has written `keys` keys. Its
/// `maxmemory-eviction-tenacity` is 100, so that each command makes one call.
pub fn count_right(agents: &[&Agent], redis: &Redis, keys: u32) -> anyhow::Result<()> {
    let all = |agent: &&Agent| {
        let scrape = agent.settled_reading(redis)?;
        let sum = |name| scrape.sum(name, &[]);
        let calls = sum("evictscope_eviction_calls_total")?;
        anyhow::Ok([sum("evictscope_evicted_keys_total")?, calls, sum("evictscope_commands_processed_total")?])
    };
    let before = agents.iter().map(all).collect::<anyhow::Result<Vec<_>>>()?;
    let evicted = redis.info("evicted_keys")?;
    redis.write_keys(keys)?;
    let evicted = redis.info("evicted_keys")? - evicted;
    for (agent, before) in agents.iter().zip(before) {
        let after = all(agent)?;
        let [keys_seen, calls, commands] = [0, 1, 2].map(|one| after[one] - before[one]);
        ensure!(keys_seen == evicted, "{keys_seen} of {evicted} evicted keys");
        ensure!(calls == commands, "{calls} calls, {commands} commands");
        let is_right = calls >= f64::from(keys);
        ensure!(is_right, "{calls} calls for {keys} keys");
    }
    Ok(())
}
