//! The programs that packing and trying out need.

use std::{path::PathBuf, process::Command};

use anyhow::Result;

use crate::{debian, process, workspace};

/// Debian's: programs, and the packages that bring them.
const PROGRAMS: [(&str, &str); 3] = [
    ("dpkg-deb", "dpkg"),
    ("mmdebstrap", "mmdebstrap"),
    ("prometheus", "prometheus"),
];

/// One of crates.io: its package and its version.
pub type Tool = (&'static str, &'static str);

/// Makes the .deb.
pub const DEB: Tool = ("cargo-deb", "3.8.0");
/// Makes the bill of materials.
pub const SBOM: Tool = ("cargo-cyclonedx", "0.5.9");

/// Installs what is not there of Debian's, where it may.
pub fn provide() -> Result<()> {
    debian::provide(&PROGRAMS, "trying the package out")
}

/// Why the package cannot be tried out here, if it cannot.
pub fn missing() -> Option<String> {
    debian::missing(&PROGRAMS)
}

/// The path of a tool in its version, which is installed below `target/tools` where it is not there.
pub fn path((package, version): Tool) -> Result<PathBuf> {
    let root = workspace::target_directory()?.join("tools");
    let path = root.join("bin").join(package);
    let present = Command::new(&path)
        .args([&package["cargo-".len()..], "--version"])
        .output();
    let fits =
        present.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(version));
    if fits {
        return Ok(path);
    }
    println!(
        "  installing {package} {version} into {} (up to a minute)",
        root.display()
    );
    let mut install = workspace::cargo();
    install
        // Built in half the time, and as fast at what it does here.
        .args(["install", "--debug", "--locked", "--force"])
        .args(["--version", version, package, "--root"])
        .arg(&root);
    process::succeed(&mut install)?;
    Ok(path)
}
