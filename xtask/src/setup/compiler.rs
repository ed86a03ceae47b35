//! The compilers of the BPF programs on this machine, and whether they are suitable.
//!
//! `agent/probes/build.rs` takes the rustup toolchain [`TOOLCHAIN`], or the `cargo` on `PATH` if there is no
//! rustup. aya-build then asks a nightly to build `core` from its source (component `rust-src`). Any other
//! compiler must bring a built `core` for the BPF target, as Debian's does.

use std::{
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;
use rustc_version::{Channel, Version};

/// The rustup toolchain with which `agent/probes/build.rs` compiles the BPF programs.
pub const TOOLCHAIN: &str = "evictscope-bpf";

/// Debian's packages that bring a compiler with a built `core` for the BPF target.
pub const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf"];

/// Where Debian's packages install their compiler.
pub const DEBIAN_SYSROOT: &str = "/usr";

const BPF_TARGET: &str = "bpfel-unknown-none";

/// How a compiler is called: a program and its first arguments.
type Call = Vec<OsString>;

/// Returns its `rustc` without arguments.
fn rustc(call: &Call) -> Command {
    let mut command = Command::new(&call[0]);
    command.args(&call[1..]);
    // Looking must not download, and a missing toolchain needs no backtrace.
    command.envs([("RUSTUP_AUTO_INSTALL", "0"), ("RUST_BACKTRACE", "0")]);
    command
}

/// A compiler of a recent enough version.
#[derive(Clone, Debug)]
pub struct Compiler {
    call: Call,
    version: Version,
    channel: Channel,
    /// The major version of its LLVM. bpf-linker's must not be older.
    pub llvm: u64,
    /// Where it is installed.
    pub sysroot: PathBuf,
}

impl fmt::Display for Compiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, llvm) = (&self.version, self.llvm);
        write!(
            f,
            "rustc {version} (LLVM {llvm}) in {}",
            self.sysroot.display()
        )
    }
}

impl Compiler {
    /// Compiles a program without `std` for the BPF target, with these arguments.
    pub fn compile_for_bpf(&self, source: &str, arguments: &[&str]) -> Result<()> {
        let scratch = tempfile::tempdir().context("cannot make a temporary directory")?;
        let file = scratch.path().join("probe.rs");
        std::fs::write(&file, source)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let mut rustc = rustc(&self.call);
        rustc
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["--target", BPF_TARGET])
            .args(arguments)
            .arg("--out-dir")
            .args([scratch.path(), &file]);
        process::answer_of(&mut rustc).map(drop)
    }

    fn has_source_of_core(&self) -> bool {
        let source = "lib/rustlib/src/rust/library/core/src/lib.rs";
        self.sysroot.join(source).exists()
    }
}

/// Finds rustup.
pub fn rustup() -> Option<PathBuf> {
    which::which("rustup").ok()
}

/// Returns the compiler that the build would take now, if it is suitable.
pub fn current() -> Result<Compiler> {
    suitable(match rustup() {
        Some(rustup) => vec![
            rustup.into(),
            "run".into(),
            TOOLCHAIN.into(),
            "rustc".into(),
        ],
        None => {
            let rustc = which::which("rustc");
            vec![
                rustc
                    .context("there is neither rustup nor rustc on PATH")?
                    .into(),
            ]
        }
    })
}

/// Returns Debian's compiler, if it is suitable.
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
        ensure!(
            compiler.has_source_of_core(),
            "the nightly compiler in {sysroot} lacks the component `rust-src`"
        );
    } else {
        compiler
            .compile_for_bpf("#![no_std]\n", &["--crate-type=lib", "--emit=metadata"])
            .with_context(|| format!("the compiler in {sysroot} has no built `core` for BPF"))?;
    }
    ensure!(
        compiler.sysroot.join("bin/cargo").exists(),
        "there is no cargo beside the compiler in {sysroot}"
    );
    Ok(compiler)
}

/// Asks a compiler about itself, and refuses it if it is too old for the workspace.
fn describe(call: Call) -> Result<Compiler> {
    let answer = process::answer_of(rustc(&call).arg("-vV"))?;
    let meta = rustc_version::version_meta_for(&answer)
        .context("the compiler does not report its version")?;
    let llvm = meta
        .llvm_version
        .context("the compiler does not report its LLVM version")?
        .major;
    let needed = env!("CARGO_PKG_RUST_VERSION");
    // A nightly counts as the release that it leads to.
    let least = Version::parse(&format!("{needed}.0"))?;
    ensure!(
        (meta.semver.major, meta.semver.minor) >= (least.major, least.minor),
        "rustc {} is older than the {needed} that the workspace needs",
        meta.semver
    );
    let sysroot = process::answer_of(rustc(&call).args(["--print", "sysroot"]))?;
    Ok(Compiler {
        call,
        version: meta.semver,
        channel: meta.channel,
        llvm,
        sysroot: sysroot.trim().into(),
    })
}
