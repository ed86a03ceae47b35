//! The numbers on /metrics against the server's own: `INFO`, on each real server that runs here where builds may
//! differ.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use evictscope_testkit::servers::{REDIS, on_each};

use crate::prelude::*;

#[test]
#[ignore = "needs root and BPF"]
fn every_result_is_told_apart() -> anyhow::Result<()> {
    let redis = Redis::private(&["--maxmemory-eviction-tenacity", "0"])?;
    let agent = Agent::watching(&redis, &[])?;
    let results = |result: &str| {
        let scrape = agent.settled_reading(&redis)?;
        scrape.sum("evictscope_eviction_calls_total", &[("kind", "evicting"), ("result", result)])
    };
    redis.write_keys(100_000)?;
    // This is far below the used memory. At tenacity 0 a call gives up after 16 keys, and a timer continues.
    redis.config_set("maxmemory", "40mb")?;
    let running = results("running")?;
    ensure!(running > 0.0, "no call stopped at its time limit");
    // While the timer runs, a call that reaches its goal answers `running`, too. Later, a command that has to evict a
    // key or two answers `ok`.
    until_true("a call reaches its goal", || {
        redis.write_keys(1_000)?;
        Ok(results("ok")? > 0.0)
    })?;
    let failed = results("fail")?;
    ensure!(failed == 0.0, "{failed} calls failed despite keys to evict");

    redis.config_set("maxmemory-policy", "noeviction")?;
    redis.config_set("maxmemory", "10mb")?;
    let before = results("fail")?;
    for _ in 0..20 {
        redis.cli(&["get", "nothing"])?;
    }
    let failed = results("fail")? - before;
    ensure!(failed >= 20.0, "{failed} failures of 20 commands");
    let refused = || agent.settled_reading(&redis)?.sum("evictscope_refused_commands_total", &[]);
    // Clients that only read get errors for other reasons.
    for _ in 0..10 {
        let _ = redis.cli(&["evalsha", &"f".repeat(40), "0"]);
    }
    ensure!(refused()? == 0.0, "reads are not refused");
    for _ in 0..20 {
        let _ = redis.cli(&["set", "key", "value"]);
    }
    // Of a transaction, what is not queued was refused, and EXEC is an error of its own.
    let mut client = TcpStream::connect(("127.0.0.1", redis.port()))?;
    client.write_all(b"MULTI\r\nSET key value\r\nEXEC\r\n")?;
    client.shutdown(Shutdown::Write)?;
    let mut answers = String::new();
    client.read_to_string(&mut answers)?;
    ensure!(answers.contains("EXECABORT"), "{answers}");
    let (exported, by_info) = (refused()?, redis.info("total_error_replies")?);
    ensure!(exported == 21.0 && by_info == 32.0, "{exported} refused, INFO says {by_info} errors");
    redis.cli(&["config", "resetstat"])?;
    let _ = redis.cli(&["eval", "return redis.call('set', 'key', 'value')", "0"]);
    let exported = refused()?;
    ensure!(exported == 22.0, "{exported} refused after CONFIG RESETSTAT");
    Ok(())
}

/// With an append-only file, the data that waits to be written to it does not count, nor its allocation.
#[test]
#[ignore = "needs root and BPF"]
fn the_buffer_of_an_append_only_file_is_seen() -> anyhow::Result<()> {
    let redis = Redis::private(&["--appendonly", "yes", "--appendfsync", "no"])?;
    let agent = Agent::watching(&redis, &[])?;
    redis.write_keys(200_000)?;
    let scrape = agent.settled_reading(&redis)?;
    let labels = [("kind", "evicting")];
    let calls = scrape.sum("evictscope_eviction_calls_total", &labels)?;
    ensure!(calls > 10_000.0, "only {calls} evicting calls");
    until_true("both say the same of what does not count", || {
        let by_info = redis.info("mem_not_counted_for_evict")?;
        let exported = agent.settled_reading(&redis)?.sum("evictscope_not_counted_memory_bytes", &[])?;
        Ok(exported > 0.0 && exported == by_info)
    })?;
    let withdrawn = agent.scrape()?.by_label("evictscope_plan_withdrawn", "reason");
    ensure!(withdrawn.is_empty(), "{withdrawn:?}");
    Ok(())
}

/// Checks that at least 100,000 calls are counted once everywhere, and that every goal is right.
#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_are_counted_once_on_every_server() -> anyhow::Result<()> {
    on_each(&REDIS, |program| {
        let redis = Redis::private_of(program, &[])?;
        let agent = Agent::watching(&redis, &["--probe-mode", "evicting-only"])?;
        redis.write_keys(400_000)?;

        let scrape = agent.settled_reading(&redis)?;
        let evicting = [("kind", "evicting")];
        let calls = scrape.sum("evictscope_eviction_calls_total", &evicting)?;
        ensure!(calls >= 100_000.0, "only {calls} evicting calls");
        let goals = scrape.count("evictscope_mem_tofree_bytes", &[])?;
        ensure!(goals == calls, "{goals} goals, {calls} calls");
        let timed = scrape.count("evictscope_eviction_call_duration_seconds", &evicting)?;
        ensure!(timed == calls, "{timed} durations, {calls} calls");
        // Each of them is checked, and anything wrong would have a series.
        for nothing in ["evictscope_plan_withdrawn", "evictscope_read_faults_total"] {
            let wrong = scrape.by_label(nothing, "reason");
            ensure!(wrong.is_empty(), "{nothing}: {wrong:?}");
        }
        let results = scrape.by_label("evictscope_eviction_calls_total", "result");
        ensure!(!results.contains_key("unknown"), "results that are not known: {results:?}");
        println!("{calls} evicting calls, no mismatch");

        let evicted = redis.info("evicted_keys")?;
        ensure!(evicted >= calls / 2.0, "{evicted} keys evicted in {calls} calls");
        let seen = scrape.sum("evictscope_evicted_keys_total", &[])?;
        ensure!(seen == evicted, "evicted keys: {seen}, INFO says {evicted}");
        Ok(())
    })
}

/// Checks that in every-call mode each command makes one call.
///
/// `evictionTimeProc` makes calls without a command: after a call that stopped at its time limit (result `running`), or
/// after `CONFIG SET maxmemory` below the used memory. With `maxmemory-eviction-tenacity 100` there is no time limit,
/// and it makes none.
#[test]
#[ignore = "needs root and BPF"]
fn each_command_makes_one_call_on_every_server() -> anyhow::Result<()> {
    on_each(&REDIS, |program| {
        let redis = Redis::private_of(program, &["--maxmemory-eviction-tenacity", "100"])?;
        let agent = Agent::watching(&redis, &["--probe-mode", "every-call"])?;
        count_right(&[&agent], &redis, 200_000)?;
        let scrape = agent.settled_reading(&redis)?;
        let calls = |kind| scrape.sum("evictscope_eviction_calls_total", &[("kind", kind)]);
        let (noop, evicting) = (calls("noop")?, calls("evicting")?);
        println!("{noop} no-op calls, {evicting} evicting");
        ensure!(noop > 10_000.0 && evicting > 10_000.0, "not the load that was meant");
        let timed = scrape.count("evictscope_eviction_call_duration_seconds", &[("kind", "noop")])?;
        ensure!(timed == noop, "{timed} durations of {noop} no-op calls");
        Ok(())
    })
}

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
    let said = redis.all_info()?;
    redis.write_keys(keys)?;
    let now = redis.all_info()?;
    let grown = |field| anyhow::Ok(now.number(field)? - said.number(field)?);
    // An INFO does not count itself. The first of the two is in the difference, and the second in the calls.
    let (evicted, by_info) = (grown("evicted_keys")?, grown("total_commands_processed")? + 1.0);
    for (agent, before) in agents.iter().zip(before) {
        let after = all(agent)?;
        let [keys_seen, calls, commands] = [0, 1, 2].map(|index| after[index] - before[index]);
        ensure!(keys_seen == evicted, "{keys_seen} of {evicted} evicted keys");
        ensure!(commands == by_info, "{commands} commands, INFO says {by_info}");
        ensure!(calls == commands, "{calls} calls, {commands} commands");
        ensure!(calls >= f64::from(keys), "{calls} calls for {keys} keys");
    }
    Ok(())
}
