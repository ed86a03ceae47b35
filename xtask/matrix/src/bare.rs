//! The machine with nothing but a kernel, the agent and a server.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::kernels::Kernel;
use crate::machine::{self, Answers, Initramfs};
use crate::table::Row;
use crate::{files, kernels, table};

/// The programs of this machine that a machine with nothing but a kernel gets.
const GUEST_PROGRAMS: [&str; 4] = ["redis-server", "redis-cli", "redis-benchmark", "setpriv"];

/// The ports of the servers in this machine.
const PORTS: [u16; 4] = [6379, 6380, 6381, 6382];

/// Runs an executable of the agent on a kernel, with nothing around it but servers.
pub fn run(kernel: &Kernel, agent: &Path) -> Result<Row> {
    let packages = kernels::provide(kernel.suite)?;
    let directory = files::directory()?.join("kernel");
    let console = directory.with_file_name(format!("{}.console", kernel.suite));
    let initramfs = Initramfs::begin(directory, &packages, include_str!("kernel.sh"))?;
    for name in GUEST_PROGRAMS {
        let program = which::which(name).with_context(|| format!("there is no {name} on PATH"))?;
        initramfs.add_program(&program, name)?;
    }
    initramfs.add_program(agent, "evictscope")?;
    let ports = PORTS.map(|port| port.to_string()).join(" ");
    let (capabilities, small_set) = (kernel.capabilities()?, kernels::small_set()?);
    // The kernel passes options that it does not know to the first process, in its environment.
    let options = format!("CAPABILITIES={capabilities} SMALL_SET={small_set} \"PORTS={ports}\"");
    let answers = machine::run(&packages, initramfs, &options, 1024, &console)?;
    judge(kernel, &capabilities, &answers)
}

/// Judges what a machine has answered. A row of the table says what was found.
fn judge(kernel: &Kernel, capabilities: &str, answers: &Answers) -> Result<Row> {
    let mut row = Row::new("kernel", answers.text("kernel")?);
    row.fact("capabilities", &capabilities.replace(',', ", "));
    let check = answers.get("check")?;
    row.check("check", check.success, "ok");
    let sees = check.text.contains("ok    sockets: ");
    row.check("sockets", sees, if sees { "seen" } else { "not seen" });
    let small = answers.get("check_with_small_set")?;
    let (right, found) = match kernel.has_multi_links {
        true => (small.success, "not needed"),
        false => (!small.success && small.text.contains("older-kernels.conf"), "`check` asks for it"),
    };
    row.check("drop-in", right, found);
    let links: Vec<_> = answers.text("links")?.lines().map(str::trim).collect();
    // Newer kernels call the links of return probes `uretprobe_multi`.
    let all_multi = !links.is_empty() && links.iter().all(|kind| kind.ends_with("probe_multi"));
    let right = all_multi == kernel.has_multi_links;
    row.check("attached by", right, &links.join(", "));
    table::compare(answers, &PORTS, &mut row)?;

    let plan: Value = serde_json::from_str(answers.text("plan")?).context("in the plan")?;
    for (column, answer, parts) in [
        ("breakpoints", "code_watched", ["entry", "inner"]),
        ("in evicting-only", "code_evicting_only", ["inner", "exits"]),
    ] {
        let sites = sites(&plan, parts);
        let code = changed_code(answers, answer)?;
        let set = code.iter().all(|changed| *changed == sites);
        let found: usize = code.iter().map(BTreeSet::len).sum();
        let found = format!("{found} of {} sites", PORTS.len() * sites.len());
        row.check(column, !sites.is_empty() && set, &found);
    }
    for (column, answer) in [("left by SIGTERM", "code_after_term"), ("left by SIGKILL", "code_after_kill")] {
        let code = changed_code(answers, answer)?;
        let left: usize = code.iter().map(BTreeSet::len).sum();
        row.check(column, left == 0, &left.to_string());
    }
    let traced = answers.text("trace")?;
    let is_exact = traced.contains("pingCommand, which implements PING: 1000 calls in ");
    row.check("traced calls", is_exact, if is_exact { "1000 of 1000" } else { traced });
    let leaks = table::leaks(answers)?;
    row.check("leaks logged", leaks == 0, &leaks.to_string());

    let code = answers.text("exit_code")?;
    let mut lives = true;
    for port in PORTS {
        lives &= answers.text(&format!("server_lives {port}"))? == "PONG";
    }
    row.check("exit code", code == "0" && lives, code);
    Ok(row)
}

/// Returns the file offsets of the probe sites in these parts of a plan's traced functions. The expire cycle is probed
/// at the same sites in every mode.
fn sites(plan: &Value, parts: [&str; 2]) -> BTreeSet<u64> {
    let functions = plan["functions"].as_array().into_iter().flatten();
    let parts = functions.flat_map(|function| {
        let parts = match function["kind"].as_str() {
            Some("expire_cycle") => ["inner", "exits"],
            _ => parts,
        };
        parts.map(|part| &function[part])
    });
    let sites = parts.flat_map(|part| match part {
        Value::Array(sites) => sites.iter().collect(),
        site => vec![site],
    });
    sites.filter_map(|site| site["file_offset"].as_u64()).collect()
}

/// Returns the file offsets at which each server's code differs from its file: `cmp -l` counts the bytes from 1.
fn changed_code(answers: &Answers, name: &str) -> Result<Vec<BTreeSet<u64>>> {
    let changed = |port: u16| {
        let begin: u64 = answers.word(&format!("code_begins_at_offset {port}"))?;
        let place = |line: &str| {
            let number = line.split_whitespace().next()?.parse::<u64>().ok()?;
            Some(begin + number.checked_sub(1)?)
        };
        let lines = answers.text(&format!("{name} {port}"))?.lines();
        lines.map(|line| place(line).with_context(|| format!("`{name}` says `{line}`"))).collect()
    };
    PORTS.into_iter().map(changed).collect()
}
