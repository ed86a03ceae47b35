//! From the package to the alert: installs the .deb in a clean root, checks every file, starts the installed
//! agent as its unit's user while the lab makes bursts, runs the queries of the installed dashboards and
//! rules in a Prometheus, and purges the package.

use std::{fs, path::Path, time::Instant};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{service::Installed, text::seconds, workspace};

use super::root::Root;
use crate::dashboards::{self, Subject};

/// Files of every installation.
const FILES: [&str; 10] = [
    "/usr/bin/evictscope",
    "/etc/evictscope/config.toml",
    "/usr/lib/systemd/system/evictscope.service",
    "/usr/share/evictscope/older-kernels.conf",
    "/usr/share/evictscope/seccomp.json",
    "/usr/share/man/man1/evictscope.1.gz",
    "/usr/share/man/man1/evictscope-run.1.gz",
    "/usr/share/bash-completion/completions/evictscope",
    "/usr/share/zsh/vendor-completions/_evictscope",
    "/usr/share/fish/vendor_completions.d/evictscope.fish",
];

/// Folders of this repository, the extension of the files in them that are installed, and where to.
const SHIPPED: [(&str, &str, &str); 3] = [
    ("dashboards", "json", "/usr/share/evictscope/dashboards"),
    ("dashboards/rules", "yaml", "/usr/share/evictscope/rules"),
    (
        "docs/runbooks",
        "md",
        "/usr/share/doc/evictscope/docs/runbooks",
    ),
];

/// Runs all of it. Call it in a process of its own, as [`dashboards::prove`].
pub fn run(deb: &Path) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "only root can install a package and attach BPF programs"
    );
    let begun = Instant::now();
    let root = Root::take()?;
    let before = root.traces()?;
    let left = || format!("{} is left as it was", root.path().display());
    install(deb, &root).with_context(left)?;
    check(&root).with_context(left)?;
    println!(
        "installed in a clean root, with every file as packed ({})",
        seconds(begun.elapsed())
    );

    let installed = Installed::at(root.path()).with_context(left)?;
    dashboards::prove(Subject::installed(&installed)).with_context(left)?;

    let begun = Instant::now();
    root.run("dpkg", &["--purge", "evictscope"])?;
    root.traces()?.must_be_as(&before)?;
    root.remove()?;
    println!("purged without a trace ({})", seconds(begun.elapsed()));
    Ok(())
}

fn install(deb: &Path, root: &Root) -> Result<()> {
    let copy = root.path().join("package.deb");
    fs::copy(deb, &copy).context("cannot copy the package")?;
    root.run("dpkg", &["--install", "/package.deb"])?;
    fs::remove_file(copy)?;
    Ok(())
}

/// Checks that every file is there and as packed, and that the program works.
fn check(root: &Root) -> Result<()> {
    let installed = root.run("dpkg", &["--listfiles", "evictscope"])?;
    let mut expected: Vec<_> = FILES.map(str::to_owned).into();
    for (directory, ending, to) in SHIPPED {
        for file in workspace::files_ending(&workspace::root().join(directory), ending)? {
            expected.push(format!("{to}/{}", super::name(&file)?));
        }
    }
    for file in expected {
        ensure!(
            installed.lines().any(|line| line == file),
            "no {file} in it:\n{installed}"
        );
    }
    for file in installed.lines().filter(|line| line.starts_with('/')) {
        let there = fs::symlink_metadata(root.path().join(file.trim_start_matches('/')));
        ensure!(there.is_ok(), "{file} was not installed");
    }
    let changed = root.run("dpkg", &["--verify", "evictscope"])?;
    ensure!(
        changed.is_empty(),
        "some files are not as packed:\n{changed}"
    );
    root.run("getent", &["passwd", "evictscope"])?;
    root.run("evictscope", &["run", "--check-config"])?;
    let check = root.run("evictscope", &["check"])?;
    println!("{check}");
    Ok(())
}
