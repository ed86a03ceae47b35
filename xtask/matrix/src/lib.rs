//! `cargo xtask matrix --kernels`: the packaged agent on Debian's kernels, in virtual machines.
//!
//! Each machine runs a script that asks the agent and the server; what they answer comes out of its
//! serial console, and is compared here. QEMU emulates the processor, as a machine that is virtual
//! itself may have no KVM, so times measured in these machines mean nothing.

mod answers;
mod bare;
mod files;
mod initramfs;
mod kernels;
mod machine;
mod numbers;
mod systemd;
mod table;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context as _, Result, bail, ensure};

use evictscope_testkit::{debian, process, text, workspace};

use crate::{kernels::KERNELS, table::Row};

/// Where users read the tables.
const PAGE: &str = "docs/COMPATIBILITY.md";

/// The name of the machine with a systemd.
const SYSTEMD: &str = "systemd";

/// What to try.
#[derive(clap::Args)]
pub struct Arguments {
    /// Boot Debian's kernels, and a Debian with systemd, with the packaged agent and a redis-server
    #[arg(long, required = true)]
    kernels: bool,
    /// Only one of them: bookworm, trixie, unstable or systemd; the documentation stays as it is
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Pack nothing: take what was packed before
    #[arg(long)]
    pub packed: bool,
}

/// Boots all machines with the package in `deb`, prints what was found, and writes it into the documentation.
///
/// # Errors
///
/// Fails where a machine cannot be made or does not answer, and where a number is not as it must be.
pub fn run(arguments: &Arguments, deb: &Path) -> Result<()> {
    debian::provide(&debian::MATRIX)?;
    if let Some(reason) = debian::missing(&debian::MATRIX) {
        bail!(reason);
    }
    fs::create_dir_all(files::directory()?)?;
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);

    let unpacked = unpack(deb)?;
    let mut kernels = Vec::new();
    for kernel in KERNELS.iter().filter(|kernel| wanted(kernel.suite)) {
        kernels.push(told(kernel.suite, || bare::run(kernel, &unpacked))?);
    }
    let mut service = Vec::new();
    if wanted(SYSTEMD) {
        service.push(told(SYSTEMD, || systemd::run(deb))?);
    }
    let text = format!(
        "{}\n{}",
        table::markdown(&kernels),
        table::markdown(&service)
    );
    println!("\n{text}");
    ensure!(!text.trim().is_empty(), "there is no machine of that name");
    if arguments.only.is_none() {
        table::write_section(
            &workspace::root().join(PAGE),
            "## Kernels",
            &explained(&text),
        )?;
    }
    let rows = kernels.iter().chain(&service);
    let faults: Vec<_> = rows.flat_map(|row| &row.faults).collect();
    ensure!(faults.is_empty(), "not as it must be: {faults:?}");
    Ok(())
}

/// The tables as the documentation has them.
fn explained(tables: &str) -> String {
    format!(
        "`cargo xtask matrix --kernels` writes this section. It boots Debian's cloud kernels in virtual machines \
         with the\npackaged agent and Debian's redis-server, makes the server evict, and compares what the agent \
         exports with `INFO`.\nThe last machine runs the package under systemd, from installing it to purging it.\n\n\
         {tables}"
    )
}

/// Runs one machine, and says how long that took.
fn told(name: &str, machine: impl FnOnce() -> Result<Row>) -> Result<Row> {
    println!("{name} ...");
    let begun = Instant::now();
    let row = machine().with_context(|| format!("the machine {name}"))?;
    let ended = row
        .took
        .map(|took| format!("; the agent ended within {took:.2} s"));
    println!(
        "{name}: {}{}",
        text::seconds(begun.elapsed()),
        ended.unwrap_or_default()
    );
    Ok(row)
}

/// Unpacks the package, and returns the directory with its files.
fn unpack(deb: &Path) -> Result<PathBuf> {
    let unpacked = files::directory()?.join("package");
    files::make_empty(&unpacked)?;
    process::answer_of(
        Command::new("dpkg-deb")
            .arg("--extract")
            .args([deb, &unpacked]),
    )?;
    Ok(unpacked)
}
