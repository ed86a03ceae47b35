//! `cargo xtask release`: prepares the tag of a version, and makes the release from it. Nothing is pushed or published.
//!
//! A release is made in a clone of the tag, so that nothing is in the release but what was committed. Nothing that is
//! compiled has paths of this machine in it, so that a release can be made again with the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::package::{self, SUMS, git};

/// How the variables begin that change what is built.
const CHANGE_BUILDS: &str = "CARGO_PROFILE_ CARGO_BUILD_ CARGO_TARGET_ CARGO_ENCODED_RUSTFLAGS CARGO_INCREMENTAL RUSTFLAGS \
     SOURCE_DATE_EPOCH";

const VERSION: &str = env!("CARGO_PKG_VERSION");

const UNRELEASED: &str = "## [Unreleased]\n";

/// What to do.
#[derive(clap::Args)]
pub struct Arguments {
    /// Turn *Unreleased* of CHANGELOG.md into the entry of this version, commit that, and tag the commit
    #[arg(long)]
    prepare: bool,
    /// Sign the checksums with this secret key of gpg's
    #[arg(long, value_name = "KEY", conflicts_with = "prepare")]
    sign: Option<String>,
}

/// Prepares the tag, or makes the release into `target/release-VERSION`. Then says what is left to do.
pub fn run(arguments: &Arguments) -> Result<()> {
    let changed = git(&["status", "--porcelain"])?;
    ensure!(changed.is_empty(), "the work tree is not clean: commit, remove or stash\n{changed}");
    let tag = format!("v{VERSION}");
    if arguments.prepare { prepare(&tag) } else { make(&tag, arguments.sign.as_deref()) }
}

fn prepare(tag: &str) -> Result<()> {
    ensure!(git(&["tag", "--list", tag])?.is_empty(), "there is a tag {tag} already: raise the version in Cargo.toml");
    let path = workspace::root().join("CHANGELOG.md");
    let mut changelog = fs::read_to_string(&path).context("cannot read CHANGELOG.md")?;
    if notes(&changelog).is_err() {
        changelog = with_entry(&changelog, Timestamp::now().to_zoned(TimeZone::UTC).date())?;
        fs::write(&path, &changelog).context("cannot write CHANGELOG.md")?;
        git(&["commit", "--quiet", "--message", &format!("release: {VERSION}"), "CHANGELOG.md"])?;
    }
    // Headings begin with a `#`, which git would take for a comment.
    git(&["tag", "--annotate", "--cleanup=verbatim", "--message", &notes(&changelog)?, tag])?;
    println!("{} has the tag {tag}, and is here alone. What is left:", git(&["log", "-1", "--format=%h %s"])?);
    println!("    cargo xtask test --all\n    cargo xtask release --sign KEY");
    Ok(())
}

fn make(tag: &str, key: Option<&str>) -> Result<()> {
    let changelog = fs::read_to_string(workspace::root().join("CHANGELOG.md")).context("cannot read CHANGELOG.md")?;
    let notes = notes(&changelog)?;
    ensure!(
        git(&["tag", "--points-at", "HEAD"])?.lines().any(|found| found == tag),
        "this commit has no tag {tag}: `cargo xtask release --prepare` makes it. If another commit has it, check that \
         one out, or raise the version in Cargo.toml"
    );
    if key.is_some() {
        // That it can is found out before anything takes long.
        ask(signing(key).args(["--yes", "--output", "/dev/null"]).arg(workspace::root().join("CHANGELOG.md")))?;
    }
    let target = workspace::target_directory()?;
    let release = target.join(format!("release-{VERSION}"));
    let clone = target.join("release-work");
    for previous in [&release, &clone] {
        if previous.exists() {
            fs::remove_dir_all(previous).context("cannot remove the previous release")?;
        }
    }
    let (here, there) = (workspace::root().display(), clone.display());
    git(&["clone", "--quiet", "--branch", tag, &here.to_string(), &there.to_string()])?;
    pack(&clone)?;
    let made = clone.join("target").join(package::DIRECTORY);
    fs::rename(made, &release).context("cannot move the release to its place")?;
    fs::remove_dir_all(&clone).context("cannot remove the clone")?;
    fs::write(release.join("NOTES.md"), notes).context("cannot write the release notes")?;
    let sums = fs::read_to_string(release.join(SUMS)).context("a release without checksums")?;
    println!("{}:\n{}\n\nWhat is left:", release.display(), sums.trim_end());
    let mut sign = signing(key);
    sign.arg(release.join(SUMS));
    if key.is_some() {
        ask(&mut sign)?
    } else {
        println!("    {}", process::display(&sign))
    }
    println!("    git push REPOSITORY HEAD {tag}\n    publish the files, with NOTES.md as the text");
    Ok(())
}

fn signing(key: Option<&str>) -> Command {
    let mut gpg = Command::new("gpg");
    gpg.args(["--armor", "--detach-sign"]).args(key.iter().flat_map(|key| ["--local-user", *key]));
    gpg
}

/// Runs a command that may ask for a passphrase on the terminal.
fn ask(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start `{}`", process::display(command)))?;
    ensure!(status.success(), "`{}` failed", process::display(command));
    Ok(())
}

fn with_entry(changelog: &str, day: Date) -> Result<String> {
    ensure!(changelog.contains(UNRELEASED), "CHANGELOG.md has no heading `{}`", UNRELEASED.trim_end());
    Ok(changelog.replacen(UNRELEASED, &format!("{UNRELEASED}\n## [{VERSION}] - {day}\n"), 1))
}

/// Returns what the changelog says of this version, under a title of its own.
fn notes(changelog: &str) -> Result<String> {
    let heading = format!("\n## [{VERSION}] - ");
    let needed =
        || format!("CHANGELOG.md has no entry `{}YYYY-MM-DD` that says what changed for users", heading.trim_start());
    let (_, entry) = changelog.split_once(&heading).with_context(needed)?;
    let (day, rest) = entry.split_once('\n').with_context(needed)?;
    let day: Date = day.trim().parse().with_context(needed)?;
    let what = rest.split("\n## ").next().unwrap_or_default().trim();
    ensure!(!what.is_empty(), needed());
    Ok(format!("# evictscope {VERSION} ({day})\n\n{what}\n"))
}

/// Packs what is in a clone, with this program, which is built from the same commit.
fn pack(clone: &Path) -> Result<()> {
    let mut pack = Command::new(std::env::current_exe()?);
    pack.arg("package").env(workspace::CHECKOUT, clone).env("RUSTC_WRAPPER", clone.join("xtask/src/release/rustc.sh"));
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if CHANGE_BUILDS.split(' ').any(|start| name.starts_with(start)) {
            pack.env_remove(&variable);
        }
    }
    process::succeed(&mut pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_what_the_changelog_says_of_the_version() -> Result<()> {
        let changelog =
            "# Changelog\n\n## [Unreleased]\n\nIt has:\n\n### Added\n\n- All.\n\n## [0.0.1] - 2020-01-01\n\n- Less.\n";
        assert!(notes(changelog).is_err());
        let day = "2026-11-29".parse()?;
        let released = with_entry(changelog, day)?;
        assert_eq!(notes(&released)?, format!("# evictscope {VERSION} ({day})\n\nIt has:\n\n### Added\n\n- All.\n"));
        // There is room for what comes next, and nothing of that is in a release.
        assert!(with_entry(&released, day).is_ok());
        assert!(
            notes(&format!("## [Unreleased]\n\n## [{VERSION}] - {day}\n\n## [0.0.1] - 2020-01-01\n\n- Less.\n"))
                .is_err()
        );
        Ok(())
    }
}
