//! What every machine must have answered: the agent's numbers are the server's, and no probe was left.

use anyhow::{Context as _, Result, ensure};

use crate::{answers::Answers, table::Row};
use evictscope_testkit::scrape::Scrape;

/// The port of the server in every machine.
const PORT: u16 = 6379;

/// What the kernel logs when a thread dies while it takes a probe off.
const LEAK: &str = "failed to unregister, leaking uprobe";

/// Compares the agent's numbers with the server's: they must be equal, and the server must have evicted.
pub fn compare(answers: &Answers, row: &mut Row) -> Result<()> {
    let page = Scrape::parse(answers.text("metrics")?)?;
    let page = page.of_server(PORT, answers.word::<u32>("server")?);
    for (what, metric, field) in [
        (
            "evicted keys",
            "evictscope_evicted_keys_total",
            "evicted_keys",
        ),
        (
            "commands",
            "evictscope_commands_processed_total",
            "total_commands_processed",
        ),
    ] {
        let told = page.sum(metric, &[])?;
        let own: f64 = answers.value("info", field)?.parse().context(field)?;
        row.check(what, told == own && own > 0.0, &format!("{told} = {own}"));
    }
    let calls = "evictscope_eviction_calls_total";
    let calls = page.sum(calls, &[("kind", "evicting")])?;
    let hits = "evictscope_probe_hits_total";
    let hits = page.sum(hits, &[("probe", "eviction_goal")])?;
    row.check(
        "evicting calls",
        calls == hits && calls > 0.0,
        &format!("{calls} = {hits}"),
    );
    Ok(())
}

/// Counts the probes that the kernel says it could not take off.
pub fn leaks(answers: &Answers) -> Result<usize> {
    let log = answers.text("kernel_log")?;
    ensure!(
        log.contains("Linux version"),
        "the kernel's log has no beginning"
    );
    Ok(log.lines().filter(|line| line.contains(LEAK)).count())
}
