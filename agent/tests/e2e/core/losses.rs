//! A server that loses its keys has a record of it, which says why, though no client was stalled.

use evictscope_records::explain::explain;
use evictscope_records::{Occasion, Summary};

use crate::core::records::record_of;
use crate::prelude::*;

const KEYS: &str = "50000";

/// Returns a server with keys, and no limit unless the options have one.
fn filled(options: &[&str]) -> anyhow::Result<Redis> {
    let redis = Redis::private(&[&["--maxmemory", "0", "--enable-debug-command", "yes"], options].concat())?;
    redis.cli(&["debug", "populate", KEYS])?;
    Ok(redis)
}

/// Returns what the record of lost keys says, of what happened and why.
fn said(redis: &Redis, lose: &[&[&str]]) -> anyhow::Result<[String; 2]> {
    let agent = Agent::watching(redis, &[])?;
    until_true("keys are counted", || {
        let parts = agent.reading(redis)?.by_label("evictscope_memory_part_bytes", "part");
        Ok(parts.contains_key("tables"))
    })?;
    for command in lose {
        redis.cli(command)?;
    }
    let is_it = |summary: &Summary| summary.occasion == Occasion::Lost && summary.server == redis.name();
    let explanation = explain(&record_of(&agent, is_it)?);
    println!("{explanation:#?}");
    Ok([explanation.what, explanation.why])
}

#[test]
#[ignore = "needs root and BPF"]
fn a_flush_is_told_with_the_command() -> anyhow::Result<()> {
    let [what, why] = said(&filled(&[])?, &[&["flushall"]])?;
    ensure!(what.contains("50.0k keys were removed at once"), "{what}");
    ensure!(why.contains("FLUSHALL removed 50.0k keys"), "{why}");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_replica_that_is_promoted_above_its_limit_is_told() -> anyhow::Result<()> {
    let primary = filled(&["--repl-diskless-sync-delay", "0"])?;
    let replica = Redis::private(&["--maxmemory", "4mb", "--replicaof", "127.0.0.1", &primary.name()])?;
    until_true("the replica has its data", || Ok(replica.cli(&["dbsize"])?.trim() == KEYS))?;
    let [what, why] = said(&replica, &[&["replicaof", "no", "one"], &["set", "key", "value"]])?;
    ensure!(what.contains("of 50.0k keys"), "{what}");
    ensure!(why.contains("before evictions began: as a replica it ignored its limit"), "{why}");
    Ok(())
}
