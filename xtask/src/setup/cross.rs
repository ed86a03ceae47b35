//! What building the agent for another processor needs: a C compiler and libraries for it, and a standard library that
//! the Rust compiler can use.
//!
//! A rustup toolchain that has the target's component needs nothing else. Elsewhere, Debian's compiler takes Debian's
//! library of the same version, out of a root directory of its own: nothing of another processor is installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::{self, Suite, unpacked};
use evictscope_testkit::target::Target;
use evictscope_testkit::{process, workspace};

use super::compiler;

/// Where Debian's compiler comes from (`compiler::DEBIAN_PACKAGES`).
const SUITE: Suite = Suite("bookworm-security", Some("bookworm"));
const LIBRARY: &str = "libstd-rust-web-dev";
const LINKER: &str = "aarch64-linux-gnu-gcc";

/// Installs what is missing, and returns the variables that a build needs.
pub fn provide(target: Target) -> Result<Vec<(String, String)>> {
    debian::require(&[&debian::CROSS])?;
    let triple = target.triple();
    let variable = |name: &str| format!("CARGO_TARGET_{}_{name}", triple.to_uppercase().replace('-', "_"));
    let mut variables = vec![(variable("LINKER"), LINKER.to_owned())];
    let mut rustc = Command::new("rustc");
    rustc.current_dir(workspace::root()).args(["--print", "target-libdir", "--target", &triple]);
    if !Path::new(process::answer_of(&mut rustc)?.trim()).exists() {
        let rustc = format!("{}/bin/rustc", compiler::DEBIAN_SYSROOT);
        let version = process::answer_of(Command::new(&rustc).arg("--version"))?;
        let version = version.split_whitespace().nth(1).context("rustc does not report its version")?;
        let root = workspace::target_folder("cross")?.join(format!("{LIBRARY}-{version}-{}", target.debian()));
        let root = unpacked(root, SUITE, target, &[LIBRARY])?;
        let library = root.join("usr/lib/rustlib").join(&triple).join("lib");
        ensure!(library.exists(), "{LIBRARY} has no {}", library.display());
        variables.push(("RUSTC".to_owned(), rustc));
        variables.push((variable("RUSTFLAGS"), format!("-L{}", library.display())));
    }
    Ok(variables)
}
