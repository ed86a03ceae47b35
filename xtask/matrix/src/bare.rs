//! The machine with nothing but a kernel, the agent and a server.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    answers::Answers,
    files,
    initramfs::Initramfs,
    kernels::{self, Kernel},
    machine::Machine,
    numbers,
    table::Row,
};

/// The programs of this machine that a machine with nothing but a kernel gets.
const GUEST_PROGRAMS: [&str; 4] = ["redis-server", "redis-cli", "redis-benchmark", "setpriv"];

/// Runs the agent on a kernel, with nothing around it but a server.
pub fn run(kernel: &Kernel, unpacked: &Path) -> Result<Row> {
    let packages = kernels::provide(kernel.suite)?;
    let busybox = packages.join("busybox");
    let directory = files::directory()?.join("kernel");
    let console = directory.with_file_name(format!("{}.console", kernel.suite));
    let initramfs = Initramfs::begin(directory, &busybox, include_str!("kernel.sh"))?;
    for name in GUEST_PROGRAMS {
        let program = which::which(name).with_context(|| format!("there is no {name} on PATH"))?;
        initramfs.add_program(&program, name)?;
    }
    initramfs.add_program(&unpacked.join("usr/bin/evictscope"), "evictscope")?;
    let initramfs = initramfs.pack()?;
    let machine = Machine {
        kernel: &packages.join("kernel"),
        initramfs: &initramfs,
        // The kernel hands what it does not know to the first process, in its environment.
        command_line: &format!("CAPABILITIES={}", kernel.capabilities.join(",")),
        memory: 1024,
        limit: Duration::from_secs(120),
    };
    judge(kernel, &machine.run(&console)?)
}

/// Judges what a machine has answered. A row of the table says what was found.
fn judge(kernel: &Kernel, answers: &Answers) -> Result<Row> {
    let mut row = Row::new(answers.text("kernel")?);
    row.fact("capabilities", &kernel.capabilities.join(", "));
    row.check("check", answers.get("check")?.success, "ok");
    row.fact("attached by", &links(answers.text("links")?));
    numbers::compare(answers, &mut row)?;

    let sites = sites(&serde_json::from_str(answers.text("plan")?).context("in the plan")?);
    for (column, answer) in [
        ("breakpoints", "code_watched"),
        ("when started again", "code_watched_again"),
    ] {
        let set = changed_code(answers, answer)?;
        let found = format!("{} of {} sites", set.len(), sites.len());
        row.check(column, !sites.is_empty() && set == sites, &found);
    }
    for (column, answer) in [
        ("left by SIGTERM", "code_after_term"),
        ("left by SIGKILL", "code_after_kill"),
    ] {
        let left = changed_code(answers, answer)?;
        row.check(column, left.is_empty(), &left.len().to_string());
    }
    let leaks = numbers::leaks(answers)?;
    row.check("leaks logged", leaks == 0, &leaks.to_string());

    let code = answers.text("exit_code")?;
    let lives = answers.text("server_lives")? == "PONG";
    row.check("exit code", code == "0" && lives, code);
    row.took = seconds_between(answers.text("stopped_after")?);
    Ok(row)
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
