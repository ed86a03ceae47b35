//! What every machine's answers must show: the agent's numbers are the server's, and no probe was left.

use anyhow::{Context as _, Result, ensure};

use crate::{answers::Answers, table::Row};
use evictscope_testkit::scrape::Scrape;

/// What the kernel logs when a thread dies while it removes a probe.
const LEAK: &str = "failed to unregister, leaking uprobe";

/// Compares the agent's numbers with those of the servers at these ports: they must be equal, and each server
/// must have evicted. The row shows the sums.
pub fn compare(answers: &Answers, ports: &[u16], row: &mut Row) -> Result<()> {
    let metrics = answers.text("metrics")?;
    let pages = ports.iter().map(|port| {
        let pid = answers.word::<u32>(&format!("server {port}"))?;
        Ok((*port, Scrape::parse(metrics)?.of_server(pid)?))
    });
    let pages: Vec<_> = pages.collect::<Result<_>>()?;
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
        let pairs = pages.iter().map(|(port, page)| {
            let own = answers.value(&format!("info {port}"), field)?;
            Ok((page.sum(metric, &[])?, own.parse::<f64>().context(field)?))
        });
        equal(what, pairs.collect::<Result<_>>()?, row);
    }
    let calls = "evictscope_eviction_calls_total";
    let hits = "evictscope_probe_hits_total";
    let pairs = pages.iter().map(|(_, page)| {
        let calls = page.sum(calls, &[("kind", "evicting")])?;
        Ok((calls, page.sum(hits, &[("probe", "eviction_goal")])?))
    });
    equal("evicting calls", pairs.collect::<Result<_>>()?, row);
    Ok(())
}

/// Adds the sums of both numbers over all servers; each server's two must be equal and not zero.
fn equal(what: &'static str, pairs: Vec<(f64, f64)>, row: &mut Row) {
    let right = pairs.iter().all(|(told, own)| told == own && *own > 0.0);
    let (told, own) = pairs
        .iter()
        .fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    row.check(what, right, &format!("{told} = {own}"));
}

/// Counts the probes that the kernel says it could not remove.
pub fn leaks(answers: &Answers) -> Result<usize> {
    let log = answers.text("kernel_log")?;
    ensure!(
        log.contains("Linux version"),
        "the kernel's log has no beginning"
    );
    Ok(log.lines().filter(|line| line.contains(LEAK)).count())
}
