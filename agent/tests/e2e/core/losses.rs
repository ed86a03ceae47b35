//! A server that loses its keys has a record of it, which says why, though no client was stalled.

use evictscope_records::explain::{CauseKind, explain};
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

/// Returns what the record of lost keys says, of what happened and why. Metrics must say the same.
fn said(redis: &Redis, lose: &[&[&str]], how: &str, cause: CauseKind) -> anyhow::Result<[String; 2]> {
    let agent = Agent::watching(redis, &[])?;
    until_true("keys are counted", || {
        let parts = agent.reading(redis)?.by_label("evictscope_memory_part_bytes", "part");
        Ok(parts.contains_key("tables"))
    })?;
    for command in lose {
        redis.cli(command)?;
    }
    let is_it = |summary: &Summary| summary.occasion == Occasion::Lost && summary.server == redis.name();
    let record = record_of(&agent, is_it)?;
    let explanation = explain(&record);
    println!("{explanation:#?}");
    let named =
        || agent.reading(redis)?.sum("evictscope_record_cause_timestamp_seconds", &[("cause", &cause.to_string())]);
    let at = until("its cause is exported", || Ok(named().ok()))?;
    ensure!((at - record.ended_us as f64 / 1e6).abs() < 0.01, "{at}, and {}", record.ended_us);
    let losses = agent.reading(redis)?.by_label("evictscope_key_losses_total", "how");
    ensure!(losses == [(how.to_owned(), 1.0)].into(), "{losses:?}");
    Ok([explanation.what, explanation.why])
}

#[test]
#[ignore = "needs root and BPF"]
fn a_flush_is_told_with_the_command() -> anyhow::Result<()> {
    let [what, why] = said(&filled(&[])?, &[&["flushall"]], "removed", CauseKind::Flushed)?;
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
    let lose: [&[&str]; 2] = [&["replicaof", "no", "one"], &["set", "key", "value"]];
    let [what, why] = said(&replica, &lose, "evicted", CauseKind::OverLimit)?;
    ensure!(what.contains("of 50.0k keys"), "{what}");
    ensure!(why.contains("before evictions began: as a replica it ignored its limit"), "{why}");
    Ok(())
}
