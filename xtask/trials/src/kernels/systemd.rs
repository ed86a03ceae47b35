//! The machine with a real systemd: the package's way from installing to purging.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::process;
use rustix::thread::CapabilitySet;

use super::machine::{Answers, Machine};
use super::{Kernel, compare, leaks, provide};
use crate::debian;
use crate::table::Row;

/// The Debian in which the package is installed, and the packages that it has besides the essential ones.
const SUITE: &str = "bookworm";
const PACKAGES: &str = "--include=adduser,systemd-sysv,redis-server,busybox-static";

/// The port of the server that Debian's package starts.
const PORT: u16 = 6379;

/// What the kernel and systemd are told.
const COMMAND_LINE: &str = "systemd.show_status=0 systemd.log_target=journal \
    systemd.run_success_action=poweroff-force systemd.run_failure_action=poweroff-force \
    systemd.run=\"/bin/sh /root/service.sh\"";

/// Runs the machine with this kernel, and judges its answers.
pub fn run(kernel: &Kernel, deb: &Path) -> Result<Row> {
    let name = format!("systemd-{}", kernel.suite);
    let machine = Machine::begin(&name, &provide(kernel.suite)?, include_str!("systemd.sh"))?;
    machine.write("service.sh", include_str!("service.sh"))?;
    machine.add(&packed_debian()?, "root.tar")?;
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
    compare(&answers, &[PORT], &mut row)?;
    must_have_succeeded(&answers, &mut row, "watchdog", &["restart", "signs_of_life", "watchdog"])?;
    let (result, code) = (answers.value("stopped", "Result")?, answers.value("stopped", "ExecMainStatus")?);
    let leaks = leaks(&answers)?;
    let right = (result, code, leaks) == ("success", "0", 0);
    row.check("stopped", right, &format!("{result}, exit code {code}, {leaks} leaks"));
    must_have_succeeded(&answers, &mut row, "purged", &["purge", "left", "server_lives"])?;
    Ok(row)
}

/// Returns an archive with a Debian, and makes it first if there is none.
fn packed_debian() -> Result<PathBuf> {
    let archive = debian::directory()?.join("debian.tar");
    if !archive.exists() {
        let part = archive.with_extension("part.tar");
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=essential", PACKAGES, "--dpkgopt=path-exclude=/usr/share/locale/*", SUITE]);
        process::succeed(make.arg(&part))?;
        fs::rename(part, &archive).context("cannot keep the Debian")?;
    }
    Ok(archive)
}

/// Checks that all of these commands have succeeded.
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
