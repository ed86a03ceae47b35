//! What a machine with nothing but a kernel must have answered.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{answers::Answers, table::Row};
use crate::scrape::Reading;

/// The port of the server in every machine.
const PORT: u16 = 6379;

/// What the kernel logs when a thread dies while it takes a probe off.
const LEAK: &str = "failed to unregister, leaking uprobe";

/// Judges what a machine has answered. A row of the table says what was found.
pub fn judge(answers: &Answers) -> Result<Row> {
    let mut row = Row::new(answers.text("kernel")?);
    row.check("check", answers.get("check")?.success, "ok");
    row.fact("attached by", &links(answers.text("links")?));
    same_numbers(answers, &mut row)?;

    let sites = sites(&serde_json::from_str(answers.text("plan")?).context("in the plan")?);
    let during = changed_code(answers, "code_during")?;
    row.check(
        "breakpoints while it runs",
        !sites.is_empty() && during == sites,
        &format!("{} of {} sites", during.len(), sites.len()),
    );
    let after = changed_code(answers, "code_after")?;
    row.check("after", after.is_empty(), &after.len().to_string());
    let leaks = leaks(answers)?;
    row.check("leaks logged", leaks == 0, &leaks.to_string());

    let code = answers.text("exit_code")?;
    let lives = answers.text("server_lives")? == "PONG";
    row.check("exit code", code == "0" && lives, code);
    row.took = seconds_between(answers.text("stopped_after")?);
    Ok(row)
}

/// Compares the agent's numbers with the server's: they must be equal, and the server must have evicted.
pub fn same_numbers(answers: &Answers, row: &mut Row) -> Result<()> {
    let page = Reading::parse(answers.text("metrics")?, PORT, answers.word("server")?)?;
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
        let told = page.sum(metric, &[]).context(metric)?;
        let own: f64 = answers.value("info", field)?.parse().context(field)?;
        row.check(what, told == own && own > 0.0, &format!("{told} = {own}"));
    }
    let calls = "evictscope_eviction_calls_total";
    let calls = page.sum(calls, &[("kind", "evicting")]).context(calls)?;
    let hits = "evictscope_probe_hits_total";
    let hits = page
        .sum(hits, &[("probe", "eviction_goal")])
        .context(hits)?;
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
    Ok(log.lines().filter(|line| line.contains(LEAK)).count())
}

/// The file offsets of all probe sites of a plan, wherever in it they are.
fn sites(plan: &Value) -> BTreeSet<u64> {
    match plan {
        Value::Object(members) => {
            let own = members.get("file_offset").and_then(Value::as_u64);
            let below = members.values().flat_map(sites);
            own.into_iter().chain(below).collect()
        }
        Value::Array(items) => items.iter().flat_map(sites).collect(),
        _ => BTreeSet::new(),
    }
}

/// The file offsets at which the server's code differs from what it was at first: `cmp -l` counts the
/// bytes from 1.
fn changed_code(answers: &Answers, name: &str) -> Result<BTreeSet<u64>> {
    let begin: u64 = answers.word("code_begins_at_offset")?;
    let lines = answers.text(name)?.lines();
    let place = |line: &str| {
        let number = line.split_whitespace().next()?.parse::<u64>().ok()?;
        Some(begin + number.checked_sub(1)?)
    };
    lines
        .map(|line| place(line).with_context(|| format!("`{name}` says `{line}`")))
        .collect()
}

/// The kinds of the agent's BPF links, with how many of each there are.
fn links(counted: &str) -> String {
    let words: Vec<_> = counted.split_whitespace().collect();
    let kinds = words.chunks(3).map(|line| match line {
        [count, _, kind] => format!("{count} {kind}"),
        _ => "?".to_owned(),
    });
    kinds.collect::<Vec<_>>().join(", ")
}

/// The difference of two times, the later one first.
fn seconds_between(times: &str) -> Option<f64> {
    let (later, earlier) = times.split_once(' ')?;
    Some(later.parse::<f64>().ok()? - earlier.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_site_of_a_plan_is_found() {
        let plan = serde_json::json!({
            "address": 1,
            "functions": [{ "entry": { "file_offset": 16 }, "exits": [{ "file_offset": 32 }] }],
        });
        assert_eq!(sites(&plan), BTreeSet::from([16, 32]));
    }

    #[test]
    fn changed_code_is_told_by_file_offset() -> Result<()> {
        let console =
            "@@ code_begins_at_offset\n4096\n@@ ended 0\n@@ code\n  17 125 314\n@@ ended 1\n";
        let answers = Answers::read(console)?;
        assert_eq!(changed_code(&answers, "code")?, BTreeSet::from([4096 + 16]));
        Ok(())
    }

    #[test]
    fn links_are_counted_by_kind() {
        let counted = "      4 link_type: perf\n      1 link_type: uprobe_multi\n";
        assert_eq!(links(counted), "4 perf, 1 uprobe_multi");
    }
}
