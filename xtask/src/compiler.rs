//! The compiler of the BPF programs: which ones are here, and whether they can do it.
//!
//! `agent/build.rs` takes the rustup toolchain [`TOOLCHAIN`], or the `cargo` on `PATH` where there
//! is no rustup. aya-build then asks a nightly to build `core` from its source (component
//! `rust-src`); any other compiler must bring a built `core` for the BPF target, as Debian's does.

use std::{
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use rustc_version::{Channel, Version};

use crate::process;

/// The rustup toolchain that `agent/build.rs` compiles the BPF programs with.
pub const TOOLCHAIN: &str = "evictscope-bpf";

/// Debian's packages that bring a compiler with a built `core` for the BPF target.
pub const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// Where Debian's packages put their compiler.
pub const DEBIAN_SYSROOT: &str = "/usr";

const BPF_TARGET: &str = "bpfel-unknown-none";

/// How a compiler is called.
#[derive(Clone, Debug)]
pub enum Call {
    /// As a toolchain of rustup.
    Rustup {
        /// rustup itself.
        rustup: PathBuf,
        /// The name rustup knows it by.
        toolchain: &'static str,
    },
    /// By its path.
    Path(PathBuf),
}

impl Call {
    /// `rustc` of this compiler, still without arguments.
    pub fn rustc(&self) -> Command {
        match self {
            Self::Rustup { rustup, toolchain } => {
                let mut command = Command::new(rustup);
                command.args(["run", toolchain, "rustc"]);
                // To look must not download, and what is not there is no crash to be traced.
                command.envs([("RUSTUP_AUTO_INSTALL", "0"), ("RUST_BACKTRACE", "0")]);
                command
            }
            Self::Path(rustc) => Command::new(rustc),
        }
    }
}

/// A compiler that can build the BPF programs.
#[derive(Clone, Debug)]
pub struct Compiler {
    /// How to call it.
    pub call: Call,
    /// Its version.
    pub version: Version,
    /// The major version of its LLVM; bpf-linker's must not be older.
    pub llvm: u64,
    /// Where it is installed.
    pub sysroot: PathBuf,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "rustc {} (LLVM {}) in {}",
            self.version,
            self.llvm,
            self.sysroot.display()
        )
    }
}

/// rustup, where there is one.
pub fn rustup() -> Option<PathBuf> {
    which::which("rustup").ok()
}

/// The compiler that the build takes as things are.
pub fn current() -> Result<Compiler> {
    match rustup() {
        Some(rustup) => examine(Call::Rustup {
            rustup,
            toolchain: TOOLCHAIN,
        }),
        None => examine(Call::Path(
            which::which("rustc").context("there is neither rustup nor rustc on PATH")?,
        )),
    }
}

/// rustup's `nightly`, if it can build the BPF programs.
pub fn nightly(rustup: &Path) -> Result<Compiler> {
    examine(Call::Rustup {
        rustup: rustup.to_owned(),
        toolchain: "nightly",
    })
}

/// Debian's compiler, if it can build the BPF programs.
pub fn debian() -> Result<Compiler> {
    examine(Call::Path(Path::new(DEBIAN_SYSROOT).join("bin/rustc")))
}

/// rustup's `nightly`, if it lacks the source of `core`.
pub fn nightly_without_source(rustup: &Path) -> Option<Compiler> {
    let call = Call::Rustup {
        rustup: rustup.to_owned(),
        toolchain: "nightly",
    };
    let (compiler, _) = describe(call).ok()?;
    (!core_source(&compiler.sysroot).exists()).then_some(compiler)
}

/// The command that makes the compiler in `sysroot` the one that `agent/build.rs` takes.
pub fn link_command(rustup: &Path, sysroot: &Path) -> Command {
    let mut command = Command::new(rustup);
    command.args(["toolchain", "link", TOOLCHAIN]).arg(sysroot);
    command
}

fn examine(call: Call) -> Result<Compiler> {
    let (compiler, channel) = describe(call)?;
    let sysroot = compiler.sysroot.display();
    if channel == Channel::Nightly {
        ensure!(
            core_source(&compiler.sysroot).exists(),
            "the nightly compiler in {sysroot} lacks the component `rust-src`"
        );
    } else {
        compiles_against_core(&compiler.call).with_context(|| {
            format!("the compiler in {sysroot} has no built `core` for {BPF_TARGET}")
        })?;
    }
    ensure!(
        compiler.sysroot.join("bin/cargo").exists(),
        "there is no cargo beside the compiler in {sysroot}"
    );
    Ok(compiler)
}

/// What a compiler says of itself, provided that it is recent enough for the workspace.
fn describe(call: Call) -> Result<(Compiler, Channel)> {
    let answer = process::answer_of(call.rustc().arg("-vV"))?;
    let meta = rustc_version::version_meta_for(&answer)
        .context("the compiler does not tell its version")?;
    let llvm = meta
        .llvm_version
        .context("the compiler does not tell its LLVM version")?
        .major;
    let needed = env!("CARGO_PKG_RUST_VERSION");
    ensure!(
        recent_enough(&meta.semver, needed),
        "rustc {} is older than the {needed} that the workspace needs",
        meta.semver
    );
    let sysroot = process::answer_of(call.rustc().args(["--print", "sysroot"]))?;
    let compiler = Compiler {
        call,
        version: meta.semver,
        llvm,
        sysroot: sysroot.trim().into(),
    };
    Ok((compiler, meta.channel))
}

/// Whether `version` is at least `needed`, which is written as in a Cargo.toml: `1.95`. A nightly
/// counts as the release it leads to.
fn recent_enough(version: &Version, needed: &str) -> bool {
    let mut parts = needed.split('.').map_while(|part| part.parse().ok());
    let needed: (u64, u64) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    (version.major, version.minor) >= needed
}

fn core_source(sysroot: &Path) -> PathBuf {
    sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs")
}

/// Compiles next to nothing for the BPF target, which needs a `core` that this very compiler made.
fn compiles_against_core(call: &Call) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let source = scratch.path().join("probe.rs");
    std::fs::write(&source, "#![no_std]\n")
        .with_context(|| format!("cannot write {}", source.display()))?;
    process::answer_of(
        call.rustc()
            .args([
                "--target",
                BPF_TARGET,
                "--crate-type=lib",
                "--emit=metadata",
                "--out-dir",
            ])
            .arg(scratch.path())
            .arg(&source),
    )?;
    Ok(())
}

/// Links next to nothing with the bpf-linker on `PATH`, from this compiler's bitcode.
pub fn links_with_bpf_linker(compiler: &Compiler) -> Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
    let source = scratch.path().join("probe.rs");
    // Without `core`, because linking that takes seconds and says nothing more of the linker.
    std::fs::write(
        &source,
        "#![feature(no_core)]\n#![no_core]\n#![no_main]\n#![allow(internal_features)]\n",
    )
    .with_context(|| format!("cannot write {}", source.display()))?;
    process::answer_of(
        compiler
            .call
            .rustc()
            .env("RUSTC_BOOTSTRAP", "1")
            .args([
                "--target",
                BPF_TARGET,
                "--crate-type=bin",
                "-Clinker=bpf-linker",
            ])
            .arg("-Clink-arg=--btf")
            .arg("-o")
            .arg(scratch.path().join("probe"))
            .arg(&source),
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_its_numbers() -> Result<()> {
        let cases = [
            ("1.95.0", true),
            ("1.94.1", false),
            ("1.97.0-nightly", true),
            ("1.95.0-nightly", true),
            ("1.100.0", true),
            ("2.0.0", true),
        ];
        for (version, expected) in cases {
            assert_eq!(
                recent_enough(&Version::parse(version)?, "1.95"),
                expected,
                "{version}"
            );
        }
        Ok(())
    }

    #[test]
    fn a_compiler_that_is_not_there_is_an_error() {
        assert!(examine(Call::Path("/nonexistent/rustc".into())).is_err());
    }
}
