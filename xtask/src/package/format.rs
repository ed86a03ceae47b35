//! The two kinds of packages, as their programs install, check and remove them in a root directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::Suite;
use evictscope_testkit::root::enter;
use evictscope_testkit::{debian, libraries, process, workspace};

const NAME: &str = "evictscope";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Handled by the root's dpkg.
    Deb,
    /// Handled by this machine's rpm, which enters the root: Debian's root has none.
    Rpm,
}

impl Format {
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
    let linked = libraries::of_this_machine(&workspace::agent_binary()?)?;
    for line in required.lines() {
        let what = line.split(['(', ' ']).next().unwrap_or(line);
        let is_there = match what.strip_prefix('/') {
            Some(file) => root.path().join(file).exists(),
            None => PROVIDED.contains(&what) || linked.iter().any(|library| library.ends_with(what)),
        };
        ensure!(is_there, "the .rpm requires {line}, which is not there");
    }
    ensure!(
        required.lines().any(|line| line.starts_with("libc.so.6(")),
        "the .rpm does not require the C library:\n{required}"
    );
    Ok(())
}

/// Paths that do not count as traces: what is not on disk, and where Debian itself keeps the state of
/// packages, logs, caches, and copies of the lists of users.
const NOT_COUNTED: &str = "./proc ./run ./sys ./dev ./var/lib/dpkg ./var/lib/rpm ./var/log ./var/cache ./etc/passwd- \
     ./etc/.pwd.lock";

pub struct Root(PathBuf);

impl Root {
    /// Makes a fresh one. This takes some seconds, and the first time 15 more, because it comes from Debian's archive.
    pub fn take() -> Result<Self> {
        let root = workspace::target_directory()?.join("clean-root");
        // The smallest Debian, and what the package depends on.
        let options = ["--variant=minbase", "--include=adduser"];
        let packed = debian::made(root.with_extension("tar"), Suite("bookworm", None), &options)?;
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

    /// Returns its files, and the lines of its lists of users and groups, and of their passwords.
    pub fn traces(&self) -> Result<BTreeSet<String>> {
        let found = process::answer_of(Command::new("find").current_dir(&self.0).arg("."))?;
        let counted = |line: &&str| {
            !NOT_COUNTED.split(' ').any(|path| line.starts_with(path))
                && !line.ends_with("/group-")
                && !line.ends_with("shadow-")
        };
        let mut traces: BTreeSet<String> = found.lines().filter(counted).map(str::to_owned).collect();
        for list in ["passwd", "group", "shadow", "gshadow"] {
            let users = fs::read_to_string(self.0.join("etc").join(list)).context("the root has no users")?;
            traces.extend(users.lines().map(|user| format!("{list}: {user}")));
        }
        Ok(traces)
    }

    /// Fails if something was added since these traces, or removed.
    pub fn must_be_as(&self, before: &BTreeSet<String>) -> Result<()> {
        let traces = self.traces()?;
        let changed: Vec<_> = traces.symmetric_difference(before).collect();
        ensure!(
            changed.is_empty(),
            "removing the package leaves these, or removes what it did not install: {changed:?}"
        );
        Ok(())
    }

    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(self.0).context("cannot remove the root again")
    }
}
