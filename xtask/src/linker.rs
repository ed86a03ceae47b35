//! bpf-linker, which turns the compiler's bitcode into the BPF object, and the LLVM it is built on.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use object::{
    Endianness,
    elf::FileHeader64,
    read::elf::{Dyn as _, FileHeader as _},
};

use crate::{
    compiler::{self, Compiler},
    debian, process, workspace,
};

/// The version that setup installs.
const VERSION: &str = "0.13.0";

/// The LLVM versions that [`VERSION`] can be built on, by its features.
const LLVM_VERSIONS: std::ops::RangeInclusive<u64> = 21..=23;

/// A bpf-linker that runs.
pub struct Linker {
    /// Where it is.
    pub path: PathBuf,
    /// Its name and version, as it tells them.
    pub version: String,
    /// The major version of its LLVM; unknown where LLVM is linked into it.
    pub llvm: Option<u64>,
}

impl fmt::Display for Linker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        if let Some(llvm) = self.llvm {
            write!(f, " (LLVM {llvm})")?;
        }
        write!(f, " at {}", self.path.display())
    }
}

impl Linker {
    /// Whether it can read the bitcode of this LLVM, as far as that can be told.
    pub fn serves(&self, llvm: u64) -> bool {
        self.llvm.is_none_or(|own| own >= llvm)
    }
}

/// The bpf-linker on `PATH`, if it runs.
pub fn current() -> Result<Linker> {
    let path = which::which("bpf-linker").context("there is no bpf-linker on PATH")?;
    let version = process::answer_of(Command::new(&path).arg("--version"))?;
    let llvm = fs::read(&path).ok().and_then(|bytes| {
        needed_libraries(&bytes)
            .iter()
            .find_map(|library| llvm_major(library))
    });
    Ok(Linker {
        path,
        version: version.trim().to_owned(),
        llvm,
    })
}

/// The bpf-linker on `PATH`, if it can link what `compiler` makes.
pub fn fit_for(compiler: &Compiler) -> Result<Linker> {
    let linker = current()?;
    ensure!(
        linker.serves(compiler.llvm),
        "{linker} is too old for the bitcode of LLVM {}",
        compiler.llvm
    );
    compiler::links_with_bpf_linker(compiler)
        .with_context(|| format!("{linker} cannot link what {compiler} makes"))?;
    Ok(linker)
}

/// Whether a bpf-linker for a compiler with this LLVM is here or can be had.
pub fn obtainable(llvm: u64) -> bool {
    current().is_ok_and(|linker| linker.serves(llvm))
        || installed_llvm(llvm).is_some()
        || (LLVM_VERSIONS.contains(&llvm) && debian::knows(&development_package(llvm)))
}

/// Debian's packages that are missing to build a bpf-linker for a compiler with this LLVM.
pub fn missing_packages(llvm: u64) -> Vec<String> {
    let mut packages = Vec::new();
    if installed_llvm(llvm).is_none() {
        packages.push(development_package(llvm.max(*LLVM_VERSIONS.start())));
    }
    if !c_library_is_there("libzstd.so") {
        packages.push("libzstd-dev".to_owned());
    }
    packages
}

/// The command that builds bpf-linker on LLVM `llvm` and puts it into cargo's own directory of
/// programs. It wants the stable cargo, which is the one that runs this.
pub fn install_command(llvm: u64) -> Command {
    let llvm = installed_llvm(llvm).unwrap_or(llvm);
    let mut command = workspace::cargo();
    command
        .env("LLVM_PREFIX", prefix(llvm))
        .args([
            "install",
            "bpf-linker",
            "--version",
            VERSION,
            "--locked",
            "--force",
        ])
        .args([
            "--no-default-features",
            "--features",
            &format!("llvm-{llvm}"),
        ]);
    command
}

/// Cargo's directory of programs, if bpf-linker is there but not found on `PATH`.
pub fn directory_off_path() -> Option<PathBuf> {
    if which::which("bpf-linker").is_ok() {
        return None;
    }
    let from = |variable| std::env::var_os(variable).map(PathBuf::from);
    let directory = from("CARGO_INSTALL_ROOT")
        .or_else(|| from("CARGO_HOME"))
        .or_else(|| Some(std::env::home_dir()?.join(".cargo")))?
        .join("bin");
    directory.join("bpf-linker").exists().then_some(directory)
}

/// The oldest LLVM from `at_least` on whose development files are here.
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

/// Whether the C compiler finds this library to link with: it answers with a path then, else with
/// the bare name.
fn c_library_is_there(name: &str) -> bool {
    process::answer_of(Command::new("cc").arg(format!("-print-file-name={name}")))
        .is_ok_and(|answer| answer.trim().contains('/'))
}

/// The major version in a name such as `libLLVM.so.22.1` or `libLLVM-17.so`.
fn llvm_major(library: &str) -> Option<u64> {
    let rest = library.strip_prefix("libLLVM")?;
    let digits = rest.trim_start_matches(|character: char| !character.is_ascii_digit());
    let end = digits
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// The shared libraries that an executable asks for by name; none where it is not such a one.
fn needed_libraries(executable: &[u8]) -> Vec<String> {
    let read = || -> object::read::Result<Vec<String>> {
        let header = FileHeader64::<Endianness>::parse(executable)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, executable)?;
        let Some((entries, strings)) = sections.dynamic(endian, executable)? else {
            return Ok(Vec::new());
        };
        let strings = sections.strings(endian, executable, strings)?;
        let mut names = Vec::new();
        for entry in entries {
            if entry.tag(endian) == object::elf::DT_NEEDED {
                let name = entry.string(endian, strings)?;
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        Ok(names)
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_llvm_version_is_read_from_the_library_name() {
        assert_eq!(llvm_major("libLLVM.so.22.1"), Some(22));
        assert_eq!(llvm_major("libLLVM-17.so"), Some(17));
        assert_eq!(llvm_major("libLLVM.so"), None);
        assert_eq!(llvm_major("libc.so.6"), None);
    }

    #[test]
    fn the_needed_libraries_of_an_executable_are_found() -> Result<()> {
        let own = fs::read(std::env::current_exe()?)?;
        assert!(
            needed_libraries(&own)
                .iter()
                .any(|name| name.starts_with("libc.so"))
        );
        assert!(needed_libraries(b"#!/bin/sh\n").is_empty());
        Ok(())
    }
}
