//! The two kinds of packages, as their programs install, check and remove them in a root directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::root::enter;
use evictscope_testkit::{process, workspace};

use super::sbom;

const NAME: &str = "evictscope";

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

    /// Asks the package's program with these arguments, of dpkg or of rpm.
    fn ask(self, root: &Root, of_dpkg: &[&str], of_rpm: &[&str]) -> Result<String> {
        match self {
            Self::Deb => root.run("dpkg", of_dpkg),
            Self::Rpm => process::answer_of(rpm(root).args(of_rpm)),
        }
    }

    pub fn files(self, root: &Root) -> Result<Vec<String>> {
        let listed = self.ask(root, &["--listfiles", NAME], &["--query", "--list", NAME])?;
        Ok(listed.lines().filter(|line| line.starts_with('/')).map(str::to_owned).collect())
    }

    /// Returns where it installs what the .deb has at this path.
    pub fn place_of(self, path: String) -> String {
        match self {
            Self::Deb => path,
            // As `packaging/rpm/evictscope.spec` has it.
            Self::Rpm => path.replace("/zsh/vendor-completions/", "/zsh/site-functions/"),
        }
    }

    pub fn verify(self, root: &Root) -> Result<()> {
        let changed = self.ask(root, &["--verify", NAME], &["--verify", "--nodeps", NAME])?;
        ensure!(changed.is_empty(), "some files are not as packed:\n{changed}");
        Ok(())
    }

    /// Removes the package, with all that its program can remove of it.
    pub fn remove(self, root: &Root) -> Result<()> {
        self.ask(root, &["--purge", NAME], &["--erase", NAME]).map(drop)
    }
}

fn rpm(root: &Root) -> Command {
    let mut rpm = Command::new("rpm");
    rpm.arg("--root").arg(root.path()).args(["--dbpath", "/var/lib/rpm"]);
    rpm
}

/// Requirements of an .rpm that rpm, the loader and the package itself provide.
const PROVIDED: [&str; 3] = ["rpmlib", "rtld", "config"];

/// Checks that everything that an .rpm requires is there: a file of the root, or a library that its agent is linked to.
fn requirements_are_there(package: &Path, root: &Root) -> Result<()> {
    let required = process::answer_of(rpm(root).args(["--query", "--requires", "--package"]).arg(package))?;
    let linked = sbom::of(&workspace::agent_binary()?)?;
    for line in required.lines() {
        let what = line.split(['(', ' ']).next().unwrap_or(line);
        let is_there = match what.strip_prefix('/') {
            Some(file) => root.path().join(file).exists(),
            None => PROVIDED.contains(&what) || linked.iter().any(|library| library.path.ends_with(what)),
        };
        ensure!(is_there, "the .rpm requires {line}, which is not there");
    }
    ensure!(
        required.lines().any(|line| line.starts_with("libc.so.6(")),
        "the .rpm does not require the C library:\n{required}"
    );
    Ok(())
}

/// The options of mmdebstrap: the smallest Debian, and what the package depends on.
const MADE_OF: [&str; 3] = ["--variant=minbase", "--include=adduser", "bookworm"];

/// Paths that do not count as traces: what is not on disk, and where Debian itself keeps the state of
/// packages, logs, caches, and copies of the lists of users.
const NOT_COUNTED: &str = "./proc ./run ./sys ./dev ./var/lib/dpkg ./var/lib/rpm ./var/log ./var/cache ./etc/passwd- \
     ./etc/.pwd.lock";

pub struct Root(PathBuf);

impl Root {
    /// Makes a fresh one. This takes some seconds, and the first time 15 more, because it comes from Debian's archive.
    pub fn take() -> Result<Self> {
        let root = workspace::target_directory()?.join("clean-root");
        let packed = root.with_extension("tar");
        if !packed.exists() {
            let part = root.with_extension("part.tar");
            let mut make = Command::new("mmdebstrap");
            process::answer_of(make.arg("--quiet").args(MADE_OF).arg(&part)).context("cannot make a clean root")?;
            fs::rename(part, &packed)?;
        }
        if root.exists() {
            fs::remove_dir_all(&root).context("cannot remove the previous root")?;
        }
        fs::create_dir(&root)?;
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--numeric-owner", "--file"]).arg(packed).arg("--directory").arg(&root);
        process::answer_of(&mut unpack)?;
        Ok(Self(root))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        process::answer_of(enter(&self.0, program).args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    }

    pub fn traces(&self) -> Result<Traces> {
        let found = process::answer_of(Command::new("find").current_dir(&self.0).arg("."))?;
        let counted = |line: &&str| {
            !NOT_COUNTED.split(' ').any(|path| line.starts_with(path))
                && !line.ends_with("/group-")
                && !line.ends_with("shadow-")
        };
        let list = |name| fs::read_to_string(self.0.join("etc").join(name));
        let lists = ["passwd", "group", "shadow", "gshadow"];
        Ok(Traces {
            files: found.lines().filter(counted).map(str::to_owned).collect(),
            users: lists.into_iter().map(list).collect::<io::Result<_>>()?,
        })
    }

    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(self.0).context("cannot remove the root again")
    }
}

pub struct Traces {
    files: BTreeSet<String>,
    /// The lists of users and groups, and of their passwords.
    users: Vec<String>,
}

impl Traces {
    /// Fails if something was added since `before`, or removed.
    pub fn must_be_as(&self, before: &Self) -> Result<()> {
        let left: Vec<_> = self.files.difference(&before.files).collect();
        ensure!(left.is_empty(), "removing the package leaves {left:?}");
        let gone: Vec<_> = before.files.difference(&self.files).collect();
        ensure!(gone.is_empty(), "removing the package removes {gone:?}, which it did not install");
        ensure!(self.users == before.users, "removing the package leaves its user or group");
        Ok(())
    }
}
