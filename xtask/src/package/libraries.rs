//! Debian's packages of the libraries that the agent is linked with.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::debian::{Suite, unpacked};
use evictscope_testkit::target::Target;
use evictscope_testkit::{process, workspace};
use regex::Regex;

/// The one with the C library, and the other.
pub const PACKAGES: [&str; 2] = ["libc6", "libgcc-s1"];

/// Returns a root directory with them for a processor.
pub fn root(target: Target) -> Result<PathBuf> {
    let root = workspace::target_folder("cross")?.join(format!("libraries-{}", target.debian()));
    unpacked(root, Suite("bookworm", None), target, &PACKAGES)
}

/// Returns what a .deb with this program depends on. debhelper knows the symbols in this machine's libraries alone.
pub fn requirements(program: &Path) -> Result<String> {
    let versions = process::answer_of(Command::new("readelf").arg("--version-info").arg(program))?;
    let numbers = Regex::new(r"Name: GLIBC_(\d+)\.(\d+)")?;
    let numbers = numbers.captures_iter(&versions).map(|found| (found[1].parse::<u32>(), found[2].parse::<u32>()));
    let newest = numbers.filter_map(|(major, minor)| Some((major.ok()?, minor.ok()?))).max();
    let (major, minor) = newest.with_context(|| format!("{} needs no C library", program.display()))?;
    Ok(format!("{} (>= {major}.{minor}), {}", PACKAGES[0], PACKAGES[1]))
}
