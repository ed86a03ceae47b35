//! Debian's packages of servers, for each suite, with all that they need to run in a root directory of their own.
//!
//! apt is asked for them as if nothing were installed here, in a directory of its own: this machine's packages and
//! lists stay as they are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};

use crate::files;

/// Debian's suites. A suite that is not complete in itself comes after the one that it adds to.
pub const SUITES: [Suite; 7] = [
    Suite::alone("bullseye"),
    Suite::alone("bookworm"),
    Suite::above("bookworm", "bookworm-backports"),
    Suite::alone("trixie"),
    Suite::above("trixie", "trixie-backports"),
    Suite::alone(NEWEST),
    Suite::above(NEWEST, "experimental"),
];

/// The complete suite with the newest libraries.
pub const NEWEST: &str = "unstable";

/// What may be packaged: `NAME-server` has the server, as a link into `NAME-tools`.
const PRODUCTS: [&str; 2] = ["redis", "valkey"];

/// What a root has besides a server: the links that join its directories, and a library for servers that are not
/// Debian's.
const BESIDE: [&str; 2] = ["base-files", "libstdc++6"];

/// The keys that sign Debian's suites, from the package debian-archive-keyring.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

pub struct Suite {
    pub name: &'static str,
    /// The suite that it adds to.
    base: Option<&'static str>,
}

pub struct Package {
    /// `redis` or `valkey`.
    pub product: String,
    /// Its version in Debian.
    pub version: String,
    /// The root directory with it and all that it needs.
    pub root: PathBuf,
}

impl Suite {
    const fn alone(name: &'static str) -> Self {
        Self { name, base: None }
    }

    const fn above(base: &'static str, name: &'static str) -> Self {
        Self { name, base: Some(base) }
    }

    pub fn named(name: &str) -> Result<&'static Self> {
        let mut suites = SUITES.iter();
        let suite = suites.find(|suite| suite.name == name);
        suite.with_context(|| format!("there is no suite {name} here"))
    }

    /// Returns the servers of this suite. Downloads them if they are missing; remove the directory to get the suite's
    /// newest.
    pub fn provide(&self) -> Result<Vec<Package>> {
        let directory = files::directory()?.join("suites").join(self.name);
        if !directory.exists() {
            let part = directory.with_extension("part");
            files::make_empty(&part)?;
            self.download(&part).with_context(|| format!("cannot get the servers of Debian {}", self.name))?;
            fs::rename(&part, &directory).context("cannot keep the servers")?;
        }
        let mut packages = Vec::new();
        for root in workspace::entries(&directory)? {
            let name = root.file_name().unwrap_or_default().to_string_lossy();
            let (product, version) = name.split_once('_').context("not a package")?;
            packages.push(Package { product: product.to_owned(), version: version.to_owned(), root: root.clone() });
        }
        Ok(packages)
    }

    fn download(&self, to: &Path) -> Result<()> {
        let apt = Apt::asking(self.base.into_iter().chain([self.name]))?;
        for product in PRODUCTS {
            let server = format!("{product}-server");
            if let Some(version) = apt.version(&server, self.name)? {
                let packages = [server, format!("{product}-tools")];
                let packages = packages.map(|package| format!("{package}/{}", self.name));
                apt.unpack(&packages, &to.join(format!("{product}_{version}")))?;
            }
        }
        Ok(())
    }
}

impl Package {
    /// Returns the server's executable file, as seen from outside its root.
    pub fn server(&self) -> Result<PathBuf> {
        let link = self.root.join("usr/bin").join(format!("{}-server", self.product));
        link.canonicalize().with_context(|| format!("the package has no {}", link.display()))
    }
}

/// An apt that knows only some suites and has nothing installed.
struct Apt(PathBuf);

impl Apt {
    /// Makes an apt with the lists of these suites from the mirror that this machine's apt uses.
    fn asking<'a>(suites: impl Iterator<Item = &'a str>) -> Result<Self> {
        let directory = files::directory()?.join("apt");
        files::make_empty(&directory)?;
        for needed in ["etc/apt/preferences.d", "var/lib/apt/lists/partial"] {
            fs::create_dir_all(directory.join(needed))?;
        }
        let mirror = mirror()?;
        let lines = suites.map(|suite| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"));
        fs::write(directory.join("etc/apt/sources.list"), lines.collect::<String>())?;
        fs::write(directory.join("status"), "")?;
        let apt = Self(directory);
        process::answer_of(apt.command("apt-get").arg("update"))?;
        Ok(apt)
    }

    /// Returns a program of apt's that uses this directory.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let directory = self.0.display();
        for option in [
            format!("Dir={directory}"),
            format!("Dir::State::status={directory}/status"),
            // The archive that a machine reaches may be a snapshot: signed, but out of date.
            "Acquire::Check-Valid-Until=false".to_owned(),
            // apt's own user cannot write here.
            "APT::Sandbox::User=root".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        command
    }

    fn version(&self, package: &str, suite: &str) -> Result<Option<String>> {
        let all = process::answer_of(self.command("apt-cache").args(["madison", package]))?;
        Ok(version_in(&all, suite))
    }

    /// Unpacks these packages and all that they need into a root directory. Nothing in them is run.
    fn unpack(&self, packages: &[String], root: &Path) -> Result<()> {
        let archives = self.0.join("archives");
        files::make_empty(&archives)?;
        fs::create_dir(archives.join("partial"))?;
        process::answer_of(
            self.command("apt-get")
                .args(["--yes", "--no-install-recommends", "--download-only"])
                .arg("-o")
                .arg(format!("Dir::Cache::archives={}", archives.display()))
                .arg("install")
                .args(packages)
                .args(BESIDE),
        )?;
        for archive in workspace::files_ending(&archives, "deb")? {
            process::answer_of(Command::new("dpkg-deb").arg("--extract").args([&archive, root]))?;
        }
        for shared in ["proc", "sys", "dev"] {
            fs::create_dir_all(root.join(shared))?;
        }
        Ok(())
    }
}

/// Returns the mirror of Debian that this machine's apt uses.
fn mirror() -> Result<String> {
    let mirrors = process::answer_of(Command::new("apt-get").args([
        "indextargets",
        "--format=$(REPO_URI)",
        "Created-By: Packages",
        "Origin: Debian",
        "Label: Debian",
    ]))?;
    let mirror = mirrors.lines().next();
    let mirror = mirror.context("apt has no Debian source: add one, and run `apt-get update`")?;
    ensure!(Path::new(KEYRING).exists(), "there is no {KEYRING}: the package debian-archive-keyring brings it");
    Ok(mirror.to_owned())
}

/// Finds the version in a suite in what `apt-cache madison` says: `PACKAGE | VERSION | MIRROR SUITE/main ...`.
fn version_in(versions: &str, suite: &str) -> Option<String> {
    let place = format!(" {suite}/");
    let mut lines = versions.lines().filter(|line| line.contains(&place));
    Some(lines.next()?.split('|').nth(1)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_that_of_the_suite_itself() {
        let versions = "\
valkey-server | 8.1.1+dfsg1-3 | http://mirror/debian trixie-backports/main amd64 Packages
valkey-server | 8.0.1+dfsg1-1 | http://mirror/debian trixie/main amd64 Packages
";
        let version = |suite| version_in(versions, suite);
        assert_eq!(version("trixie").as_deref(), Some("8.0.1+dfsg1-1"));
        assert_eq!(version("trixie-backports").as_deref(), Some("8.1.1+dfsg1-3"));
        assert_eq!(version("bookworm"), None);
    }
}
