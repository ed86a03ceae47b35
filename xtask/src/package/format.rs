//! The two kinds of packages, as their programs install, check and remove them in a root directory.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::process;

use super::{libraries, root::Root};

/// The package's name in both.
const NAME: &str = "evictscope";

/// A kind of package.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Handled by the root's dpkg.
    Deb,
    /// Handled by this machine's rpm, which enters the root: Debian's root has none.
    Rpm,
}

impl Format {
    /// Installs a package, whose scripts run in the root.
    pub fn install(self, package: &Path, root: &Root) -> Result<()> {
        match self {
            Self::Deb => {
                let copy = root.path().join("package.deb");
                fs::copy(package, &copy).context("cannot copy the package")?;
                root.run("dpkg", &["--install", "/package.deb"])?;
                fs::remove_file(copy)?;
            }
            Self::Rpm => {
                requirements_are_there(package, root)?;
                // rpm knows nothing of what dpkg has installed.
                process::answer_of(rpm(root).args(["--install", "--nodeps"]).arg(package))?;
            }
        }
        Ok(())
    }

    /// Returns what the package has installed.
    pub fn files(self, root: &Root) -> Result<Vec<String>> {
        let listed = match self {
            Self::Deb => root.run("dpkg", &["--listfiles", NAME])?,
            Self::Rpm => process::answer_of(rpm(root).args(["--query", "--list", NAME]))?,
        };
        let paths = listed.lines().filter(|line| line.starts_with('/'));
        Ok(paths.map(str::to_owned).collect())
    }

    /// Returns where it installs what the .deb has at this path.
    pub fn place_of(self, path: String) -> String {
        match self {
            Self::Deb => path,
            // As `packaging/rpm/evictscope.spec` has it.
            Self::Rpm => path.replace("/zsh/vendor-completions/", "/zsh/site-functions/"),
        }
    }

    /// Fails if a file is not as packed.
    pub fn verify(self, root: &Root) -> Result<()> {
        let changed = match self {
            Self::Deb => root.run("dpkg", &["--verify", NAME])?,
            Self::Rpm => {
                let mut verify = rpm(root);
                verify.args(["--verify", "--nodeps", NAME]);
                process::answer_of(&mut verify)?
            }
        };
        ensure!(
            changed.is_empty(),
            "some files are not as packed:\n{changed}"
        );
        Ok(())
    }

    /// Removes the package, with all that its program can remove of it.
    pub fn remove(self, root: &Root) -> Result<()> {
        match self {
            Self::Deb => root.run("dpkg", &["--purge", NAME])?,
            Self::Rpm => process::answer_of(rpm(root).args(["--erase", NAME]))?,
        };
        Ok(())
    }
}

fn rpm(root: &Root) -> Command {
    let mut rpm = Command::new("rpm");
    rpm.arg("--root").arg(root.path());
    rpm.args(["--dbpath", "/var/lib/rpm"]);
    rpm
}

/// Requirements of an .rpm that rpm, the loader and the package itself provide.
const PROVIDED: [&str; 3] = ["rpmlib", "rtld", "config"];

/// Checks that everything that an .rpm requires is there: a file of the root, or a library that its agent is linked to.
fn requirements_are_there(package: &Path, root: &Root) -> Result<()> {
    let mut ask = rpm(root);
    ask.args(["--query", "--requires", "--package"]);
    let required = process::answer_of(ask.arg(package))?;
    let agent = evictscope_testkit::workspace::agent_binary()?;
    let linked = libraries::of(&agent)?;
    for line in required.lines() {
        let what = line.split(['(', ' ']).next().unwrap_or(line);
        let is_there = match what.strip_prefix('/') {
            Some(file) => root.path().join(file).exists(),
            None => {
                PROVIDED.contains(&what)
                    || linked.iter().any(|library| library.path.ends_with(what))
            }
        };
        ensure!(is_there, "the .rpm requires {line}, which is not there");
    }
    ensure!(
        required.lines().any(|line| line.starts_with("libc.so.6(")),
        "the .rpm does not require the C library:\n{required}"
    );
    Ok(())
}
