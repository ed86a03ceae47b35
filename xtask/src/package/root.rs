//! A clean root directory with the smallest Debian.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, root::enter, workspace};

/// The options of mmdebstrap: the smallest Debian, and what the package depends on.
const MADE_OF: [&str; 3] = ["--variant=minbase", "--include=adduser", "bookworm"];

/// Paths that do not count as traces: what is not on disk, and where Debian itself keeps the state of
/// packages, logs, caches, and copies of the lists of users.
const NOT_COUNTED: [&str; 10] = [
    "./proc",
    "./run",
    "./sys",
    "./dev",
    "./var/lib/dpkg",
    "./var/lib/rpm",
    "./var/log",
    "./var/cache",
    "./etc/passwd-",
    "./etc/.pwd.lock",
];

/// A clean root that is in use.
pub struct Root(PathBuf);

impl Root {
    /// Makes a fresh one. This takes some seconds, and the first time 15 more, because it comes from Debian's archive.
    pub fn take() -> Result<Self> {
        let root = workspace::target_directory()?.join("clean-root");
        let packed = root.with_extension("tar");
        if !packed.exists() {
            let part = root.with_extension("part.tar");
            let mut make = Command::new("mmdebstrap");
            make.arg("--quiet").args(MADE_OF).arg(&part);
            process::answer_of(&mut make).context("cannot make a clean root")?;
            fs::rename(part, &packed)?;
        }
        if root.exists() {
            fs::remove_dir_all(&root).context("cannot remove the previous root")?;
        }
        fs::create_dir(&root)?;
        let mut unpack = Command::new("tar");
        unpack.args(["--extract", "--numeric-owner", "--file"]);
        unpack.arg(packed).arg("--directory").arg(&root);
        process::answer_of(&mut unpack)?;
        Ok(Self(root))
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Runs a program in it and returns what it prints.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        process::answer_of(
            enter(&self.0, program)
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    }

    /// Returns what is in it now.
    pub fn traces(&self) -> Result<Traces> {
        let found = process::answer_of(Command::new("find").current_dir(&self.0).arg("."))?;
        let counted = |line: &&str| {
            !NOT_COUNTED.iter().any(|path| line.starts_with(path))
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

    /// Removes it.
    pub fn remove(self) -> Result<()> {
        fs::remove_dir_all(self.0).context("cannot remove the root again")
    }
}

/// What a package may leave behind.
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
        ensure!(
            gone.is_empty(),
            "removing the package removes {gone:?}, which it did not install"
        );
        ensure!(
            self.users == before.users,
            "removing the package leaves its user or group"
        );
        Ok(())
    }
}
