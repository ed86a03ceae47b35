//! The tools of crates.io that pack the agent.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use evictscope_testkit::{process, workspace};

/// A cargo subcommand: its package and its version.
pub type Tool = (&'static str, &'static str);

/// Makes the .deb.
pub const DEB: Tool = ("cargo-deb", "3.8.0");
/// Makes the bill of materials.
pub const SBOM: Tool = ("cargo-cyclonedx", "0.5.9");

/// Returns the path of a tool. Installs it below `target/tools` first if this version is not there.
pub fn path((package, version): Tool) -> Result<PathBuf> {
    let root = workspace::target_directory()?.join("tools");
    let path = root.join("bin").join(package);
    let present = Command::new(&path).args([&package["cargo-".len()..], "--version"]).output();
    let fits = present.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version));
    if fits {
        return Ok(path);
    }
    println!("  installing {package} {version} into {} (up to a minute)", root.display());
    let mut install = workspace::cargo();
    install
        // A debug build takes half the time, and less without debug information. It is as fast at what it does here.
        .env("CARGO_PROFILE_DEV_DEBUG", "false")
        .args(["install", "--debug", "--locked", "--force"])
        .args(["--version", version, package, "--root"])
        .arg(&root)
        // What they have in common is built once.
        .env("CARGO_TARGET_DIR", root.join("build"));
    process::succeed(&mut install)?;
    Ok(path)
}
