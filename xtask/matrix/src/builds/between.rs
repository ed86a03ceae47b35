//! Calls between the two bounds: memory is above the limit, but only by what does not count.

use std::{
    io::Write as _,
    net::{Ipv4Addr, TcpStream},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, redis::Redis, wait::until};

/// The least bytes that do not count. What the sockets also take is less, and what the calling clients take is less than half.
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
        let is_full =
            before.replace(not_counted) == Some(not_counted) && not_counted >= NOT_COUNTED;
        let limit = info.number("used_memory")? - not_counted / 2.0;
        Ok(is_full.then_some(limit))
    })?;
    redis.config_set("maxmemory", &limit.round().to_string())?;
    process::answer_of(&mut redis.benchmark("-t get -n 2000"))?;
    Ok(())
}
