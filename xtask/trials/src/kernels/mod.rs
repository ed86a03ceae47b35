//! Debian's kernels in virtual machines: with nothing but the agent and servers around them, or in a Debian with
//! systemd and the package.
//!
//! Each machine runs a script that asks the agent and the servers; their answers come out of its serial console, and
//! are compared here.

mod machine;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::{Suite, made, unpacked};
use evictscope_testkit::scrape::Scrape;
use evictscope_testkit::target::Target;
use rustix::thread::CapabilitySet;
use serde_json::Value;

use self::machine::{Answers, Machine};
use crate::directory;
use crate::table::Row;

/// The unit, and its drop-in for kernels without uprobe_multi links.
const UNIT: &str = include_str!("../../../../packaging/evictscope.service");
const DROP_IN: &str = include_str!("../../../../packaging/older-kernels.conf");

/// The programs of this machine that a machine with nothing but a kernel gets.
const GUEST_PROGRAMS: [&str; 4] = ["redis-server", "redis-cli", "redis-benchmark", "setpriv"];

const PORTS: [u16; 4] = [6379, 6380, 6381, 6382];

/// What the kernel logs when a thread dies while it removes a probe.
const LEAK: &str = "failed to unregister, leaking uprobe";

/// The current cloud kernel of a suite.
pub struct Kernel {
    pub suite: &'static str,
    /// Whether it has uprobe_multi links (Linux 6.6).
    has_multi_links: bool,
}

/// The kernels on which the agent is tried.
pub const KERNELS: [Kernel; 3] = [
    Kernel { suite: "bookworm", has_multi_links: false },
    Kernel { suite: "trixie", has_multi_links: true },
    Kernel { suite: "unstable", has_multi_links: true },
];

/// Returns the root directory with the kernel of a suite for a processor, and a busybox that needs no library.
pub fn provide(suite: &'static str, target: Target) -> Result<PathBuf> {
    let processor = target.debian();
    let packages = [&format!("linux-image-cloud-{processor}"), "busybox-static"];
    unpacked(directory()?.join(format!("{suite}-kernel-{processor}")), Suite(suite, None), target, &packages)
}

/// Adds [`GUEST_PROGRAMS`] and the agent: this machine's, or those of another processor with Debian's libraries for it.
fn add_programs(machine: &Machine, agent: &Path, target: Target) -> Result<()> {
    if target == Target::X86_64 {
        for name in GUEST_PROGRAMS {
            let program = which::which(name).with_context(|| format!("there is no {name} on PATH"))?;
            machine.add_program(&program, name)?;
        }
        return machine.add_program(agent, "evictscope");
    }
    let root = directory()?.join(format!("guest-{}", target.debian()));
    let root = unpacked(root, SUITE, target, &["redis-server", "redis-tools", "util-linux"])?;
    for name in GUEST_PROGRAMS {
        machine.add_program_of(&root, &root.join("usr/bin").join(name), name)?;
    }
    machine.add_program_of(&root, agent, "evictscope")
}

/// Returns the capabilities of a unit, named as `setpriv` names them.
fn ambient(unit: &str) -> Result<String> {
    let names = unit.lines().find_map(|line| line.strip_prefix("AmbientCapabilities="));
    Ok(names.context("a unit has no ambient capabilities")?.replace("CAP_", "").replace(' ', ",").to_lowercase())
}

/// Runs an executable of the agent on a kernel, with nothing around it but servers. The row says what was found.
pub fn run(kernel: &Kernel, agent: &Path, target: Target) -> Result<Row> {
    let packages = provide(kernel.suite, target)?;
    let machine = Machine::begin(kernel.suite, &packages, include_str!("kernel.sh"), target)?;
    add_programs(&machine, agent, target)?;
    let small_set = ambient(UNIT)?;
    let multi = kernel.has_multi_links;
    let capabilities = if multi { small_set.clone() } else { format!("{small_set},{}", ambient(DROP_IN)?) };
    // The kernel passes options that it does not know to the first process, in its environment.
    let ports = PORTS.map(|port| port.to_string()).join(" ");
    let options = format!("CAPABILITIES={capabilities} SMALL_SET={small_set} \"PORTS={ports}\"");
    let answers = machine.run(&options, 1024)?;

    let mut row = Row::new("kernel", answers.text("kernel")?);
    row.fact("capabilities", capabilities.replace(',', ", "));
    let check = answers.get("check")?;
    row.check("check", check.success, "ok");
    let sees = check.text.contains("ok    sockets: ");
    row.check("sockets", sees, if sees { "seen" } else { "not seen" });
    let small = answers.get("check_with_small_set")?;
    let asks = !small.success && small.text.contains("older-kernels.conf");
    row.check(
        "drop-in",
        if multi { small.success } else { asks },
        if multi { "not needed" } else { "`check` asks for it" },
    );
    let links: Vec<_> = answers.text("links")?.lines().map(str::trim).collect();
    // Newer kernels call the links of return probes `uretprobe_multi`.
    let all_multi = !links.is_empty() && links.iter().all(|kind| kind.ends_with("probe_multi"));
    row.check("attached by", all_multi == multi, &links.join(", "));
    compare(&answers, &PORTS, &mut row)?;

    // `brk` takes four bytes, of which some may be those of the file.
    let breakpoint = if target == Target::Aarch64 { 4 } else { 1 };
    let plan: Value = serde_json::from_str(answers.text("plan")?).context("in the plan")?;
    for (column, answer, sites) in [
        ("breakpoints", "code_watched", sites(&plan, ["entry", "inner"])),
        ("in evicting-only", "code_evicting_only", sites(&plan, ["inner", "exits"])),
    ] {
        let code = changed_code(&answers, answer, breakpoint)?;
        let right = !sites.is_empty() && code.iter().all(|changed| *changed == sites);
        let found: usize = code.iter().map(BTreeSet::len).sum();
        row.check(column, right, &format!("{found} of {} sites", PORTS.len() * sites.len()));
    }
    for (column, answer) in [("left by SIGTERM", "code_after_term"), ("left by SIGKILL", "code_after_kill")] {
        let left: usize = changed_code(&answers, answer, breakpoint)?.iter().map(BTreeSet::len).sum();
        row.check(column, left == 0, &left.to_string());
    }
    let traced = answers.text("trace")?;
    let is_exact = traced.contains("pingCommand, which implements PING: 1000 calls in ");
    row.check("traced calls", is_exact, if is_exact { "1000 of 1000" } else { traced });
    let leaks = leaks(&answers)?;
    row.check("leaks logged", leaks == 0, &leaks.to_string());
    let code = answers.text("exit_code")?;
    let alive = PORTS.map(|port| answers.text(&format!("server_lives {port}")).is_ok_and(|answer| answer == "PONG"));
    row.check("exit code", code == "0" && !alive.contains(&false), code);
    Ok(row)
}

/// Returns the file offsets of the probe sites in these parts of a plan's traced functions. The expire cycle is probed
/// at the same sites in every mode.
fn sites(plan: &Value, parts: [&str; 2]) -> BTreeSet<u64> {
    let functions = plan["functions"].as_array().into_iter().flatten();
    let parts = functions.flat_map(|function| {
        let parts = if function["kind"] == "expire_cycle" { ["inner", "exits"] } else { parts };
        parts.map(|part| &function[part])
    });
    let sites = parts.flat_map(|part| part.as_array().map_or(vec![part], |sites| sites.iter().collect()));
    sites.filter_map(|site| site["file_offset"].as_u64()).collect()
}

/// Returns the file offsets of the instructions of so many bytes in which each server's code differs from its file:
/// `cmp -l` counts the bytes from 1.
fn changed_code(answers: &Answers, name: &str, bytes: u64) -> Result<Vec<BTreeSet<u64>>> {
    let changed = |port: u16| {
        let begin: u64 = answers.word(&format!("code_begins_at_offset {port}"))?;
        let place = |line: &str| {
            let place = begin + line.split_whitespace().next()?.parse::<u64>().ok()?.checked_sub(1)?;
            Some(place / bytes * bytes)
        };
        let lines = answers.text(&format!("{name} {port}"))?.lines();
        lines.map(|line| place(line).with_context(|| format!("`{name}` says `{line}`"))).collect()
    };
    PORTS.into_iter().map(changed).collect()
}

/// Compares the agent's numbers with those of the servers at these ports, each of which must have evicted.
fn compare(answers: &Answers, ports: &[u16], row: &mut Row) -> Result<()> {
    let metrics = answers.text("metrics")?;
    let mut pairs = [const { Vec::new() }; 3];
    let mut seen = [const { Vec::new() }; 3];
    for port in ports {
        let page = Scrape::parse(metrics)?.of_server(answers.word(&format!("server {port}"))?)?;
        let sum = |name: &str, labels: &[(&str, &str)]| page.sum(&format!("evictscope_{name}_total"), labels);
        let own = |field: &str| anyhow::Ok(answers.value(&format!("info {port}"), field)?.parse::<f64>()?);
        pairs[0].push((sum("evicted_keys", &[])?, own("evicted_keys")?));
        pairs[1].push((sum("commands_processed", &[])?, own("total_commands_processed")?));
        let hits = sum("probe_hits", &[("probe", "eviction_goal")])?;
        pairs[2].push((sum("eviction_calls", &[("kind", "evicting")])?, hits));
        seen[0].push(sum("bursts", &[])?);
        seen[1].push(sum("requests_waited", &[("over", "0.1")])?);
        seen[2].push(sum("stall_seconds", &[])?);
    }
    for (column, pairs) in ["evicted keys", "commands", "evicting calls"].into_iter().zip(pairs) {
        row.equal(column, &pairs);
    }
    for (column, seen) in ["bursts", "waits", "stalls, s"].into_iter().zip(seen) {
        let shown: Vec<_> = seen.iter().map(|seen| format!("{seen:.1}")).collect();
        row.check(column, seen.iter().all(|seen| *seen > 0.0), &shown.join(", "));
    }
    Ok(())
}

fn leaks(answers: &Answers) -> Result<usize> {
    let log = answers.text("kernel_log")?;
    ensure!(log.contains("Linux version"), "the kernel's log has no beginning");
    Ok(log.lines().filter(|line| line.contains(LEAK)).count())
}

/// The Debian in which the package is installed, and the packages that it has besides the essential ones.
const SUITE: Suite = Suite("bookworm", None);
const PACKAGES: &str = "--include=adduser,systemd-sysv,redis-server,busybox-static";

const COMMAND_LINE: &str = "systemd.show_status=0 systemd.log_target=journal \
    systemd.run_success_action=poweroff-force systemd.run_failure_action=poweroff-force \
    systemd.run=\"/bin/sh /root/service.sh\"";

/// Runs the package on a kernel, in a Debian with systemd, from installing to purging.
pub fn run_service(kernel: &Kernel, deb: &Path) -> Result<Row> {
    let name = format!("systemd-{}", kernel.suite);
    let machine =
        Machine::begin(&name, &provide(kernel.suite, Target::X86_64)?, include_str!("systemd.sh"), Target::X86_64)?;
    machine.write("service.sh", include_str!("service.sh"))?;
    let options = ["--variant=essential", PACKAGES, "--dpkgopt=path-exclude=/usr/share/locale/*"];
    machine.add(&made(directory()?.join("debian.tar"), SUITE, &options)?, "root.tar")?;
    machine.add(deb, "evictscope.deb")?;
    let answers = machine.run(COMMAND_LINE, 2048)?;

    let mut row = Row::new("kernel", answers.text("kernel")?);
    row.fact("systemd", answers.text("systemd")?.trim_start_matches("systemd "));
    must_have_succeeded(&answers, &mut row, "installed", &["install", "enabled"])?;
    let asked_for = answers.text("asks_for_drop_in")? != "0";
    let found = if asked_for { "the log asks for it" } else { "not needed" };
    row.check("drop-in", asked_for != kernel.has_multi_links, found);
    must_have_succeeded(&answers, &mut row, "ready", &["active", "ready"])?;
    row.no_faults("restricted", &restrictions(&answers)?, "as the unit says");
    compare(&answers, &PORTS[..1], &mut row)?;
    must_have_succeeded(&answers, &mut row, "watchdog", &["restart", "signs_of_life", "watchdog"])?;
    let (result, code) = (answers.value("stopped", "Result")?, answers.value("stopped", "ExecMainStatus")?);
    let leaks = leaks(&answers)?;
    let right = (result, code, leaks) == ("success", "0", 0);
    row.check("stopped", right, &format!("{result}, exit code {code}, {leaks} leaks"));
    must_have_succeeded(&answers, &mut row, "purged", &["purge", "left", "server_lives"])?;
    Ok(row)
}

fn must_have_succeeded(answers: &Answers, row: &mut Row, column: &'static str, names: &[&str]) -> Result<()> {
    let mut failed = Vec::new();
    for name in names {
        let answer = answers.get(name)?;
        failed.extend((!answer.success).then(|| format!("{name}: {}", answer.text.trim())));
    }
    row.no_faults(column, &failed, "yes");
    Ok(())
}

/// Returns where the restrictions of the running agent differ from what systemd says about the unit.
fn restrictions(answers: &Answers) -> Result<Vec<String>> {
    let status = |key| answers.value("status", key);
    let unit = |property| answers.value("unit", property);
    let [bounding, ambient] = ["CapabilityBoundingSet", "AmbientCapabilities"].map(|property| mask(unit(property)?));
    let (bounding, ambient) = (bounding?, ambient?);
    let mut wrong = Vec::new();
    for (what, found, expected) in [
        ("CapBnd", status("CapBnd")?, bounding.as_str()),
        ("CapPrm", status("CapPrm")?, &ambient),
        ("CapEff", status("CapEff")?, &ambient),
        ("NoNewPrivs", status("NoNewPrivs")?, "1"),
        ("Seccomp", status("Seccomp")?, "2"),
        ("Umask", status("Umask")?, unit("UMask")?),
        ("oom_score_adj", answers.text("oom_score_adj")?, unit("OOMScoreAdjust")?),
        ("memory.max", answers.text("memory_max")?, unit("MemoryMax")?),
        ("pids.max", answers.text("tasks_max")?, unit("TasksMax")?),
    ] {
        if found != expected {
            wrong.push(format!("{what} is {found} instead of {expected}"));
        }
    }
    if status("Uid")?.starts_with('0') {
        wrong.push("it runs as root".to_owned());
    }
    if !answers.get("sandbox")?.success {
        wrong.push("it sees /root, or can write to /etc".to_owned());
    }
    Ok(wrong)
}

/// Returns the capabilities of a list of names, as `/proc/PID/status` writes them.
fn mask(names: &str) -> Result<String> {
    let mut set = CapabilitySet::empty();
    for name in names.split_whitespace() {
        let known = CapabilitySet::from_name(name.to_uppercase().trim_start_matches("CAP_"));
        set |= known.with_context(|| format!("no capability is named {name}"))?;
    }
    Ok(format!("{:016x}", set.bits()))
}
