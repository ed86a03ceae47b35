//! Runs and watches a build: compares the agent's numbers with those of the server.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::process;
use evictscope_testkit::redis::PrivateBuild;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::wait::until;
use rustix::process::Signal;

use super::plan::Plan;
use super::reading::{Reading, Readings};
use super::{Build, LIMIT};
use crate::table::Row;

/// A lower limit, which makes a server evict for some milliseconds.
const LOWER_LIMIT: &str = "12mb";

/// A limit far below what the server has by then.
const LOWEST_LIMIT: &str = "6mb";

/// How many calls fail.
const FAILING: u32 = 2_000;

/// How many clients have sent a part of a command, so that there are buffers to compare.
const WAITING: usize = 50;

/// Runs a build below its limit and at it, in both probe modes, and adds what was found.
pub fn compare(build: &Build, plan: &Plan, agent: &Path, row: &mut Row) -> Result<()> {
    let own = PrivateBuild::in_root(&build.program, build.root.as_deref())?;
    // Data that is not yet written to the AOF does not count.
    let redis = own.start(&["--maxmemory", LIMIT, "--appendonly", "yes"])?;
    let _waiting = clients(redis.port())?;
    let watch = |mode: &str| {
        let agent = Agent::of(agent, &["--probe-mode", mode, &own.only()])?;
        agent.watches(&redis)?;
        anyhow::Ok(agent)
    };

    let agent = watch("evicting-only")?;
    let begun = Reading::of(&agent, &redis)?;
    expire(&redis)?;
    redis.set_keys(1000, 20_000)?;
    let below = Reading::of(&agent, &redis)?;
    call(&redis)?;
    let between = Reading::of(&agent, &redis)?;
    redis.config_set("maxmemory", LIMIT)?;
    redis.config_set("hz", "10")?;
    redis.write_keys(60_000)?;
    // There is so much to evict at once that calls stop at their time limit.
    redis.config_set("maxmemory", LOWER_LIMIT)?;
    thread::sleep(Duration::from_millis(500));
    fail(&redis)?;
    // At the limit, the client that asks for INFO would make it evict.
    redis.config_set("maxmemory", LIMIT)?;
    let evicting = Reading::of(&agent, &redis)?;
    agent.end(Signal::TERM)?;

    // Without a time limit, nothing but a command makes a call. Redis 6.0 has none.
    let _ = redis.config_set("maxmemory-eviction-tenacity", "100");
    let agent = watch("every-call")?;
    let before = Reading::of(&agent, &redis)?;
    expire(&redis)?;
    redis.config_set("hz", "10")?;
    redis.write_keys(30_000)?;
    let all = Reading::of(&agent, &redis)?;
    agent.end(Signal::TERM)?;
    redis.must_be_alive()?;

    let readings = Readings { begun, below, between, evicting, failing: FAILING, before, all };
    readings.judge(plan, row)
}

/// Connects clients that have each sent two thirds of a key.
fn clients(port: u16) -> Result<Vec<TcpStream>> {
    let part = format!("*2\r\n$3\r\nGET\r\n$30000\r\n{}", "k".repeat(20_000));
    let connect = |_| {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        client.write_all(part.as_bytes())?;
        Ok(client)
    };
    (0..WAITING).map(connect).collect::<std::io::Result<_>>().context("cannot connect to the server")
}

/// Looks keys up, and lets keys expire: first so many at once, with so little time, that expire cycles reach their time
/// limit; then some so slowly that the server's estimate of what is stale stays for a while.
fn expire(redis: &Redis) -> Result<()> {
    redis.look_up()?;
    redis.config_set("hz", "500")?;
    redis.expire_keys(20_000)?;
    redis.config_set("hz", "1")?;
    redis.expire_keys(2_000)
}

/// Makes calls that can evict nothing: one with each command, which only reads.
fn fail(redis: &Redis) -> Result<()> {
    redis.config_set("maxmemory-policy", "noeviction")?;
    redis.config_set("maxmemory", LOWEST_LIMIT)?;
    process::answer_of(&mut redis.benchmark(&format!("-t get -n {FAILING}")))?;
    redis.config_set("maxmemory", LOWER_LIMIT)?;
    redis.config_set("maxmemory-policy", "allkeys-lru")
}

/// The least bytes that do not count. What the sockets also take is less, and what the calling clients take is less
/// than half.
const NOT_COUNTED: f64 = 8e6;

/// Makes calls while half of what the server keeps for a replica that does not read is above the limit.
pub fn call(redis: &Redis) -> Result<()> {
    // What is kept for a replica counts up to this.
    redis.config_set("repl-backlog-size", "16384")?;
    let replica = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port()));
    let mut replica = replica.context("cannot connect to the server")?;
    replica.write_all(b"SYNC\r\n")?;
    let mut before = None;
    let limit = until("the sockets to a replica are full", || {
        let info = redis.all_info()?;
        let not_counted = info.number("mem_not_counted_for_evict")?;
        if not_counted < NOT_COUNTED {
            process::answer_of(&mut redis.benchmark("-t set -d 10000 -n 500"))?;
        }
        let is_full = before.replace(not_counted) == Some(not_counted) && not_counted >= NOT_COUNTED;
        let limit = info.number("used_memory")? - not_counted / 2.0;
        Ok(is_full.then_some(limit))
    })?;
    redis.config_set("maxmemory", &limit.round().to_string())?;
    process::answer_of(&mut redis.benchmark("-t get -n 2000"))?;
    Ok(())
}
