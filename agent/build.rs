//! Builds the BPF programs of `agent-ebpf` into `OUT_DIR/evictscope-programs`.
//!
//! The compiler is the rustup toolchain `evictscope-bpf`, which `cargo xtask setup` makes; without
//! rustup it is the cargo on `PATH`.

use anyhow::Context as _;
use aya_build::{Package, Toolchain};

fn main() -> anyhow::Result<()> {
    let root_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent-ebpf");
    println!(
        "cargo:rustc-env=EVICTSCOPE_RUSTC_TARGET={}",
        std::env::var("TARGET")?
    );
    aya_build::build_ebpf(
        [Package {
            name: "evictscope-ebpf",
            root_dir,
            ..Default::default()
        }],
        Toolchain::Custom("evictscope-bpf"),
    )
    .context("cannot build the BPF programs; `cargo xtask setup` installs what they need")
}
