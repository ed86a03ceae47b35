//! Builds the BPF programs of `agent-ebpf` into `OUT_DIR/evictscope-programs`.
//!
//! The compiler is the rustup toolchain `evictscope-bpf`, which `cargo xtask setup` makes; without
//! rustup it is the cargo on `PATH`.

use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::{env, fs};

use anyhow::Context as _;
use aya_build::{Package, Toolchain};

fn main() -> anyhow::Result<()> {
    let root_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../agent-ebpf");
    share_builds()?;
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|target| target == "aarch64") {
        // The programs need an instruction that only inline assembly has, as aya-ebpf does (`.cargo/config.toml`).
        // SAFETY: there is no other thread.
        unsafe { env::set_var("RUSTC_BOOTSTRAP", "aya_ebpf,evictscope_programs") };
    }
    aya_build::build_ebpf(
        [Package { name: "evictscope-ebpf", root_dir, ..Default::default() }],
        Toolchain::Custom("evictscope-bpf"),
    )
    .context("cannot build the BPF programs; `cargo xtask setup` installs what they need")
}

/// Lets all profiles share what aya-build builds below `OUT_DIR`: the programs are the same for all, and take a minute
/// to build.
fn share_builds() -> anyhow::Result<()> {
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").context("no OUT_DIR")?);
    // It is TARGET/PROFILE/build/PACKAGE/out.
    let target = out_dir.ancestors().nth(4).context("an odd OUT_DIR")?;
    let shared = target.join("bpf");
    fs::create_dir_all(&shared)?;
    // Relative, so that a copied or moved target directory does not share with the original.
    match symlink("../../../../bpf", out_dir.join("aya-build")) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}
