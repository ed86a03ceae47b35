//! bpf-linker, which turns the compiler's bitcode into the BPF object, and the LLVM on which it is built.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{debian, process, workspace};

use super::compiler::Compiler;

/// The version that set-up installs.
const VERSION: &str = "0.13.0";

/// The LLVM versions on which [`VERSION`] can be built, by its features.
const LLVM_VERSIONS: std::ops::RangeInclusive<u64> = 21..=23;

/// The shortest program to link. It has no `core`, because linking `core` takes seconds and tells no more about the linker.
const PROBE: &str =
    "#![feature(no_core)]\n#![no_core]\n#![no_main]\n#![allow(internal_features)]\n";

/// Returns the name, version and path of the bpf-linker on `PATH`, if it can link what `compiler` makes. It cannot if its LLVM is
/// older than the compiler's.
pub fn fit_for(compiler: &Compiler) -> Result<String> {
    let path = which::which("bpf-linker").context("there is no bpf-linker on PATH")?;
    let version = process::answer_of(Command::new(&path).arg("--version"))?;
    let linker = format!("{} at {}", version.trim(), path.display());
    let arguments = [
        "--crate-type=bin",
        "-Clinker=bpf-linker",
        "-Clink-arg=--btf",
    ];
    compiler
        .compile_for_bpf(PROBE, &arguments)
        .with_context(|| format!("{linker} cannot link what {compiler} makes"))?;
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
    let feature = format!("llvm-{llvm}");
    let mut command = workspace::cargo();
    command
        .env("LLVM_PREFIX", prefix(llvm))
        .args(["install", "bpf-linker", "--version", VERSION])
        .args(["--locked", "--force", "--no-default-features"])
        .args(["--features", &feature]);
    command
}

/// Fails if bpf-linker is in cargo's directory of programs, but not on `PATH`.
pub fn must_not_be_off_path() -> Result<()> {
    let from = |variable| std::env::var_os(variable).map(PathBuf::from);
    let directory = from("CARGO_INSTALL_ROOT").or_else(|| from("CARGO_HOME"));
    let directory = directory.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
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
    LLVM_VERSIONS
        .filter(|&llvm| llvm >= at_least)
        .find(|&llvm| prefix(llvm).join("bin/llvm-config").exists())
}

fn prefix(llvm: u64) -> PathBuf {
    Path::new("/usr/lib").join(format!("llvm-{llvm}"))
}

fn development_package(llvm: u64) -> String {
    format!("llvm-{llvm}-dev")
}
