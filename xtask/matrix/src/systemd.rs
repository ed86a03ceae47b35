//! The machine with a real systemd: the package's way from installing to purging.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::process;
use rustix::thread::CapabilitySet;

use crate::kernels::Kernel;
use crate::machine::{self, Answers, Initramfs};
use crate::table::Row;
use crate::{files, kernels, table};

/// The Debian in which the package is installed.
const SUITE: &str = "bookworm";

/// The kernels that run it: one that needs the drop-in, and one that does not.
pub const KERNELS: [&Kernel; 2] = [&kernels::KERNELS[0], &kernels::KERNELS[1]];

/// The port of the server that Debian's package starts.
const PORT: u16 = 6379;

/// The packages that it has besides Debian's essential ones.
const PACKAGES: &str = "--include=adduser,systemd-sysv,redis-server,busybox-static";

/// What the kernel and systemd are told.
const COMMAND_LINE: &str = "systemd.show_status=0 systemd.log_target=journal \
    systemd.run_success_action=poweroff-force systemd.run_failure_action=poweroff-force \
    systemd.run=\"/bin/sh /root/service.sh\"";

/// What `/proc/PID/status` of the running agent must say. Capabilities are compared with what
/// systemd says about the unit.
const STATUS: [(&str, &str); 2] = [("NoNewPrivs", "1"), ("Seccomp", "2")];

/// Runs the machine with this kernel, and judges its answers.
pub fn run(kernel: &Kernel, deb: &Path) -> Result<Row> {
    let packages = kernels::provide(kernel.suite)?;
    let directory = files::directory()?;
    let init = include_str!("systemd.sh");
    let initramfs = Initramfs::begin(directory.join("systemd"), &packages, init)?;
    initramfs.write("service.sh", include_str!("service.sh"))?;
    initramfs.add(&debian()?, "root.tar")?;
    initramfs.add(deb, "evictscope.deb")?;
    let console = directory.join(format!("systemd-{}.console", kernel.suite));
    let answers = machine::run(&packages, initramfs, COMMAND_LINE, 2048, &console)?;
    judge(kernel, &answers)
}

/// Returns an archive with a Debian, and makes it first if there is none.
fn debian() -> Result<PathBuf> {
    let archive = files::directory()?.join("debian.tar");
    if !archive.exists() {
        let part = archive.with_extension("part.tar");
        process::succeed(
            Command::new("mmdebstrap")
                .args(["--quiet", "--variant=essential", PACKAGES])
                .arg("--dpkgopt=path-exclude=/usr/share/locale/*")
                .arg(SUITE)
                .arg(&part),
        )?;
        fs::rename(part, &archive).context("cannot keep the Debian")?;
    }
    Ok(archive)
}

fn judge(kernel: &Kernel, answers: &Answers) -> Result<Row> {
    let mut row = Row::new("kernel", answers.text("kernel")?);
    let systemd = answers.text("systemd")?;
    row.fact("systemd", systemd.trim_start_matches("systemd "));
    succeeded(answers, &mut row, "installed", &["install", "enabled"])?;
    let asked_for = answers.text("asks_for_drop_in")? != "0";
    row.check(
        "drop-in",
        asked_for != kernel.has_multi_links,
        match asked_for {
            true => "the log asks for it",
            false => "not needed",
        },
    );
    succeeded(answers, &mut row, "ready", &["active", "ready"])?;
    row.no_faults("restricted", &restrictions(answers)?, "as the unit says");
    table::compare(answers, &[PORT], &mut row)?;
    succeeded(answers, &mut row, "watchdog", &["restart", "signs_of_life", "watchdog"])?;
    let (result, code) = (answers.value("stopped", "Result")?, answers.value("stopped", "ExecMainStatus")?);
    let leaks = table::leaks(answers)?;
    row.check(
        "stopped",
        (result, code, leaks) == ("success", "0", 0),
        &format!("{result}, exit code {code}, {leaks} leaks"),
    );
    succeeded(answers, &mut row, "purged", &["purge", "left", "server_lives"])?;
    Ok(row)
}

/// Checks that all of these commands have succeeded.
fn succeeded(answers: &Answers, row: &mut Row, column: &'static str, names: &[&str]) -> Result<()> {
    let mut failed = Vec::new();
    for name in names {
        let answer = answers.get(name)?;
        if !answer.success {
            failed.push(format!("{name}: {}", answer.text.trim()));
        }
    }
    row.no_faults(column, &failed, "yes");
    Ok(())
}

/// Returns where the restrictions of the running agent differ from what systemd says about the unit.
fn restrictions(answers: &Answers) -> Result<Vec<String>> {
    let mut expected: Vec<(&str, String)> = Vec::new();
    for (key, property) in
        [("CapBnd", "CapabilityBoundingSet"), ("CapPrm", "AmbientCapabilities"), ("CapEff", "AmbientCapabilities")]
    {
        expected.push((key, mask(answers.value("unit", property)?)?));
    }
    expected.extend(STATUS.map(|(key, value)| (key, value.to_owned())));
    expected.push(("Umask", answers.value("unit", "UMask")?.to_owned()));
    let mut wrong = Vec::new();
    let mut compare = |what: &str, found: &str, expected: &str| {
        if found != expected {
            wrong.push(format!("{what} is {found} instead of {expected}"));
        }
    };
    for (key, expected) in expected {
        compare(key, answers.value("status", key)?, &expected);
    }
    for (file, property) in
        [("oom_score_adj", "OOMScoreAdjust"), ("memory_max", "MemoryMax"), ("tasks_max", "TasksMax")]
    {
        compare(file, answers.text(file)?, answers.value("unit", property)?);
    }
    if answers.value("status", "Uid")?.starts_with('0') {
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
        let upper = name.to_uppercase();
        let known = CapabilitySet::from_name(upper.trim_start_matches("CAP_"));
        set |= known.with_context(|| format!("no capability is named {name}"))?;
    }
    Ok(format!("{:016x}", set.bits()))
}
