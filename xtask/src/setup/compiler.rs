//! The compilers of the BPF programs on this machine, and whether they are suitable.
//!
//! `agent/probes/build.rs` takes the rustup toolchain [`TOOLCHAIN`], or the `cargo` on `PATH` if there is no
//! rustup. aya-build then asks a nightly to build `core` from its source (component `rust-src`). Any other
//! compiler must bring a built `core` for the BPF target, as Debian's does.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{debian, process, workspace};
use rustc_version::{Channel, Version};

/// The rustup toolchain with which `agent/probes/build.rs` compiles the BPF programs.
pub const TOOLCHAIN: &str = "evictscope-bpf";

pub const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

pub const DEBIAN_SYSROOT: &str = "/usr";

type Call = Vec<OsString>;

fn rustc(call: &Call) -> Command {
    let mut command = Command::new(&call[0]);
    // Looking must not download, and a missing toolchain needs no backtrace.
    command.args(&call[1..]).envs([("RUSTUP_AUTO_INSTALL", "0"), ("RUST_BACKTRACE", "0")]);
    command
}

#[derive(Clone, Debug)]
pub struct Compiler {
    call: Call,
    version: Version,
    channel: Channel,
    /// The major version of its LLVM. bpf-linker's must not be older.
    pub llvm: u64,
    pub sysroot: PathBuf,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, llvm) = (&self.version, self.llvm);
        write!(f, "rustc {version} (LLVM {llvm}) in {}", self.sysroot.display())
    }
}

impl Compiler {
    /// Compiles a program without `std` for the BPF target, with these arguments.
    pub fn compile_for_bpf(&self, source: &str, arguments: &[&str]) -> Result<()> {
        let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
        let file = scratch.path().join("probe.rs");
        std::fs::write(&file, source).with_context(|| format!("cannot write {}", file.display()))?;
        let mut rustc = rustc(&self.call);
        rustc.env("RUSTC_BOOTSTRAP", "1").args(["--target", "bpfel-unknown-none"]).args(arguments);
        process::answer_of(rustc.arg("--out-dir").args([scratch.path(), &file])).map(drop)
    }
}

pub fn rustup() -> Option<PathBuf> {
    which::which("rustup").ok()
}

pub fn current() -> Result<Compiler> {
    suitable(match rustup() {
        Some(rustup) => vec![rustup.into(), "run".into(), TOOLCHAIN.into(), "rustc".into()],
        None => vec![which::which("rustc").context("there is neither rustup nor rustc on PATH")?.into()],
    })
}

pub fn debian() -> Result<Compiler> {
    suitable(vec![format!("{DEBIAN_SYSROOT}/bin/rustc").into()])
}

/// Returns the command that makes `agent/probes/build.rs` take the compiler in `sysroot`, if there is rustup.
pub fn link_command(sysroot: &Path) -> Option<Command> {
    let mut command = Command::new(rustup()?);
    command.args(["toolchain", "link", TOOLCHAIN]).arg(sysroot);
    Some(command)
}

fn suitable(call: Call) -> Result<Compiler> {
    let compiler = describe(call)?;
    let sysroot = compiler.sysroot.display();
    if compiler.channel == Channel::Nightly {
        let source = compiler.sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
        ensure!(source.exists(), "the nightly compiler in {sysroot} lacks the component `rust-src`");
    } else {
        compiler
            .compile_for_bpf("#![no_std]\n", &["--crate-type=lib", "--emit=metadata"])
            .with_context(|| format!("the compiler in {sysroot} has no built `core` for BPF"))?;
    }
    ensure!(compiler.sysroot.join("bin/cargo").exists(), "there is no cargo beside the compiler in {sysroot}");
    Ok(compiler)
}

/// Asks a compiler about itself, and refuses it if it is too old for the workspace.
fn describe(call: Call) -> Result<Compiler> {
    let answer = process::answer_of(rustc(&call).arg("-vV"))?;
    let meta = rustc_version::version_meta_for(&answer).context("the compiler does not report its version")?;
    let llvm = meta.llvm_version.context("the compiler does not report its LLVM version")?.major;
    let needed = env!("CARGO_PKG_RUST_VERSION");
    // A nightly counts as the release that it leads to.
    let least = Version::parse(&format!("{needed}.0"))?;
    ensure!(
        (meta.semver.major, meta.semver.minor) >= (least.major, least.minor),
        "rustc {} is older than the {needed} that the workspace needs",
        meta.semver
    );
    let sysroot = process::answer_of(rustc(&call).args(["--print", "sysroot"]))?;
    Ok(Compiler { call, version: meta.semver, channel: meta.channel, llvm, sysroot: sysroot.trim().into() })
}

const VERSION: &str = "0.13.0";

/// The LLVM versions on which [`VERSION`] can be built, by its features.
const LLVM_VERSIONS: std::ops::RangeInclusive<u64> = 21..=23;

/// The shortest program to link. It has no `core`, because linking `core` takes seconds and tells no more about the
/// linker.
const PROBE: &str = "#![feature(no_core)]\n#![no_core]\n#![no_main]\n#![allow(internal_features)]\n";

/// Returns the name, version and path of the bpf-linker on `PATH`, if it can link what `compiler` makes. It cannot if
/// its LLVM is older than the compiler's.
pub fn fit_for(compiler: &Compiler) -> Result<String> {
    let path = which::which("bpf-linker").context("there is no bpf-linker on PATH")?;
    let version = process::answer_of(Command::new(&path).arg("--version"))?;
    let linker = format!("{} at {}", version.trim(), path.display());
    let linked = compiler.compile_for_bpf(PROBE, &["--crate-type=bin", "-Clinker=bpf-linker", "-Clink-arg=--btf"]);
    linked.with_context(|| format!("{linker} cannot link what {compiler} makes"))?;
    Ok(linker)
}

/// Returns whether a bpf-linker for this compiler is here, or can be built.
pub fn obtainable(compiler: &Compiler) -> bool {
    let llvm = compiler.llvm;
    installed_llvm(llvm).is_some()
        || (LLVM_VERSIONS.contains(&llvm) && debian::knows(&development_package(llvm)))
        || fit_for(compiler).is_ok()
}

/// Returns Debian's packages that are missing to build a bpf-linker for a compiler with this LLVM.
pub fn missing_packages(llvm: u64) -> Vec<String> {
    let mut packages = Vec::new();
    if installed_llvm(llvm).is_none() {
        packages.push(development_package(llvm.max(*LLVM_VERSIONS.start())));
    }
    // The C compiler answers with a path if it finds a library, and with the bare name if not.
    let answer = process::answer_of(Command::new("cc").arg("-print-file-name=libzstd.so"));
    if !answer.is_ok_and(|answer| answer.contains('/')) {
        packages.push("libzstd-dev".to_owned());
    }
    packages
}

/// Returns the command that builds bpf-linker on this LLVM and installs it into cargo's directory of
/// programs. It needs the stable cargo, which is the one that runs this.
pub fn install_command(llvm: u64) -> Command {
    let llvm = installed_llvm(llvm).unwrap_or(llvm);
    let mut command = workspace::cargo();
    command
        .env("LLVM_PREFIX", prefix(llvm))
        // Nearly all of its work is LLVM's, which is built already: these halve the time.
        .envs([("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"), ("CARGO_PROFILE_RELEASE_DEBUG", "false")])
        .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force", "--no-default-features"])
        .arg(format!("--features=llvm-{llvm}"));
    command
}

/// Fails if bpf-linker is in cargo's directory of programs, but not on `PATH`.
pub fn must_not_be_off_path() -> Result<()> {
    let from = |variable| std::env::var_os(variable).map(PathBuf::from);
    let of_home = || Some(std::env::home_dir()?.join(".cargo"));
    let directory = from("CARGO_INSTALL_ROOT").or_else(|| from("CARGO_HOME")).or_else(of_home);
    let bin = directory.unwrap_or_default().join("bin");
    ensure!(
        which::which("bpf-linker").is_ok() || !bin.join("bpf-linker").exists(),
        "bpf-linker is in {0}, which is not on PATH: run `export PATH=\"{0}:$PATH\"` and then this again",
        bin.display()
    );
    Ok(())
}

/// Returns the oldest LLVM, from `at_least` on, whose development files are installed.
fn installed_llvm(at_least: u64) -> Option<u64> {
    LLVM_VERSIONS.filter(|&llvm| llvm >= at_least).find(|&llvm| prefix(llvm).join("bin/llvm-config").exists())
}

fn prefix(llvm: u64) -> PathBuf {
    Path::new("/usr/lib").join(format!("llvm-{llvm}"))
}

fn development_package(llvm: u64) -> String {
    format!("llvm-{llvm}-dev")
}
