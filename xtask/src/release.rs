//! `cargo xtask release`: makes the release of a version from its tag.
//!
//! It works in a clone of the tag, so that nothing is in the release but what was committed. Nothing that is compiled
//! has paths of this machine in it, so that a release can be made again with the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};

use crate::package::{self, SUMS, git};

/// Variables that change what is built, besides those that set profiles and targets.
const OTHER_VARIABLES: [&str; 4] = ["CARGO_ENCODED_RUSTFLAGS", "CARGO_INCREMENTAL", "RUSTFLAGS", "SOURCE_DATE_EPOCH"];

/// Makes the release into `target/release-VERSION`.
pub fn run() -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let tag = format!("v{version}");
    must_be_ready(version, &tag)?;
    let target = workspace::target_directory()?;
    let release = target.join(format!("release-{version}"));
    let clone = target.join("release-work");
    for previous in [&release, &clone] {
        if previous.exists() {
            fs::remove_dir_all(previous).context("cannot remove the previous release")?;
        }
    }
    let (here, there) = (workspace::root().display(), clone.display());
    git(&["clone", "--quiet", "--branch", &tag, &here.to_string(), &there.to_string()])?;
    pack(&clone)?;
    let made = clone.join("target").join(package::DIRECTORY);
    fs::rename(made, &release).context("cannot move the release to its place")?;
    fs::remove_dir_all(&clone).context("cannot remove the clone")?;
    let sums = fs::read_to_string(release.join(SUMS)).context("a release without checksums")?;
    println!("{}:\n{}", release.display(), sums.trim_end());
    Ok(())
}

/// Fails if the commit that is checked out cannot be released as this version.
fn must_be_ready(version: &str, tag: &str) -> Result<()> {
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "the work tree is not clean: commit, remove or stash\n{changed}");
    let changelog = workspace::root().join("CHANGELOG.md");
    let changelog = fs::read_to_string(changelog).context("cannot read CHANGELOG.md")?;
    let heading = format!("## [{version}] - ");
    let mut days = changelog.lines().filter_map(|line| line.strip_prefix(&heading));
    ensure!(
        days.any(|day| day.trim().parse::<jiff::civil::Date>().is_ok()),
        "CHANGELOG.md has no entry `{heading}YYYY-MM-DD`: say there what changed for users"
    );
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    ensure!(
        tags.lines().any(|found| found == tag),
        "this commit has no tag {tag}: git tag --annotate {tag} --message 'evictscope {version}', or, if another commit \
         has it, check that one out or raise the version in Cargo.toml"
    );
    Ok(())
}

/// Packs what is in a clone, with this program, which is built from the same commit.
fn pack(clone: &Path) -> Result<()> {
    let mut pack = Command::new(std::env::current_exe()?);
    pack.arg("package").env(workspace::CHECKOUT, clone).env("RUSTC_WRAPPER", clone.join("xtask/src/release/rustc.sh"));
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        let changes_build = ["CARGO_PROFILE_", "CARGO_BUILD_", "CARGO_TARGET_"];
        if OTHER_VARIABLES.contains(&name.as_ref()) || changes_build.iter().any(|start| name.starts_with(start)) {
            pack.env_remove(&variable);
        }
    }
    process::succeed(&mut pack)
}
