//! Packages of Debian's suites, unpacked with all that they need. This machine's packages and lists of packages stay as
//! they are.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};

const MIRROR: &str = "http://deb.debian.org/debian";

/// A suite, and the one that it adds to if it is not complete in itself.
#[derive(Clone, Copy)]
pub struct Suite(pub &'static str, pub Option<&'static str>);

/// Returns where the trials keep what they download and make.
pub fn directory() -> Result<PathBuf> {
    workspace::target_folder("matrix")
}

/// Returns the root directory of this name with these packages of a suite, of which nothing has been run. Downloads
/// them if it is not there: remove it to get the suite's newest.
pub fn unpacked(name: &str, Suite(suite, base): Suite, packages: &[&str]) -> Result<PathBuf> {
    let root = directory()?.join(name);
    if root.exists() {
        return Ok(root);
    }
    let part = root.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
    }
    // Quiet, because the test command runs this beside other steps.
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap
        .args(["--quiet", "--variant=extract"])
        // The archive that a machine reaches may be a snapshot: signed, but out of date.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg(format!("--include={}", packages.join(",")))
        .arg(base.unwrap_or(suite))
        .arg(&part);
    if let Some(base) = base {
        mmdebstrap.args([base, suite].map(|suite| format!("deb {MIRROR} {suite} main")));
    }
    process::answer_of(&mut mmdebstrap).with_context(|| format!("cannot get {packages:?} of Debian {suite}"))?;
    fs::rename(&part, &root).with_context(|| format!("cannot keep {}", root.display()))?;
    Ok(root)
}
