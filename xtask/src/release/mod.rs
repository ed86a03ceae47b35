//! `cargo xtask release`: makes what is published of a version, from its tag.
//!
//! Each time in a clone of the tag, so that nothing is in it but what was committed. Two clones at different paths
//! must give the same bytes.

mod conditions;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{process, workspace};

use self::conditions::Found;
use crate::package::{self, SUMS, git};

/// Variables that change what is built, beside those that set profiles and targets.
const OTHER_VARIABLES: [&str; 4] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_INCREMENTAL",
    "RUSTFLAGS",
    "SOURCE_DATE_EPOCH",
];

/// How to make the release.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Make it once, without a second time to compare it with
    #[arg(long)]
    once: bool,
}

/// Makes the release into `target/release-VERSION`.
pub fn run(arguments: Arguments) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let tag = tag_of(version)?;
    let target = workspace::target_directory()?;
    let release = target.join(format!("release-{version}"));
    let work = target.join("release-work");
    for previous in [&release, &work] {
        if previous.exists() {
            fs::remove_dir_all(previous).context("cannot remove the previous release")?;
        }
    }
    // Paths of different lengths.
    let first = make(&tag, &work.join("first"), &target)?;
    if !arguments.once {
        let second = make(&tag, &work.join("the-second-time"), &target)?;
        must_be_same(&first, &second)?;
    }
    fs::rename(&first, &release).context("cannot move the release to its place")?;
    fs::remove_dir_all(&work).context("cannot remove the clones")?;
    let sums = sums(&release)?;
    println!("{}:\n{}", release.display(), sums.trim_end());
    if !arguments.once {
        println!("made twice, with the same bytes");
    }
    Ok(())
}

/// Returns the tag of this version.
///
/// # Errors
///
/// Fails with all that is missing for a release.
fn tag_of(version: &str) -> Result<String> {
    let changed = git(&["status", "--porcelain"])?;
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    let same = git(&["tag", "--list", &format!("v{version}")])?;
    let changelog = workspace::root().join("CHANGELOG.md");
    let changelog = fs::read_to_string(changelog).context("cannot read CHANGELOG.md")?;
    let found = Found {
        version,
        // Two letters and a blank are in front of each name.
        changed: changed.lines().filter_map(|line| line.get(3..)).collect(),
        tags: tags.lines().collect(),
        tagged_elsewhere: !same.is_empty(),
        changelog: &changelog,
    };
    let missing = found.missing();
    if !missing.is_empty() {
        bail!("this cannot be released yet:\n- {}", missing.join("\n- "));
    }
    Ok(found.tag())
}

/// Makes everything in a new clone of the tag, and returns the directory that holds it.
fn make(tag: &str, clone: &Path, target: &Path) -> Result<PathBuf> {
    let here = workspace::root().display().to_string();
    let there = clone.display().to_string();
    git(&["clone", "--quiet", "--branch", tag, &here, &there])?;
    // The tools that pack are compiled once, for this checkout.
    let tools = target.join("tools");
    fs::create_dir_all(&tools).context("cannot make a directory for the tools")?;
    let own = clone.join("target");
    fs::create_dir(&own).context("cannot make a target directory")?;
    std::os::unix::fs::symlink(tools, own.join("tools")).context("cannot link the tools")?;

    // This program is built of the same commit.
    let mut pack = Command::new(std::env::current_exe()?);
    pack.arg("package")
        .env(workspace::CHECKOUT, clone)
        .env("RUSTC_WRAPPER", clone.join("xtask/src/release/rustc.sh"));
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let changes_build = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_"];
        if OTHER_VARIABLES.contains(&name.as_ref())
            || changes_build.iter().any(|start| name.starts_with(start))
        {
            pack.env_remove(&variable);
        }
    }
    process::succeed(&mut pack)?;
    Ok(own.join(package::DIRECTORY))
}

/// Compares what was made at two places.
fn must_be_same(first: &Path, second: &Path) -> Result<()> {
    let (one, other) = (sums(first)?, sums(second)?);
    let differing: Vec<_> = one
        .lines()
        .filter(|line| !other.lines().any(|found| found == *line))
        .collect();
    ensure!(
        one == other,
        "these have other bytes the second time (compare {} with {}, with diffoscope for example):\n{}",
        first.display(),
        second.display(),
        differing.join("\n")
    );
    Ok(())
}

fn sums(directory: &Path) -> Result<String> {
    fs::read_to_string(directory.join(SUMS)).with_context(|| format!("cannot read {SUMS}"))
}
