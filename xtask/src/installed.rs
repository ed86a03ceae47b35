//! The agent as the package has installed it in a root of its own.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_sandbox::{Place, Unit, must_be_kept};

/// A root in which the package is installed.
#[derive(Clone, Debug)]
pub struct Installed {
    root: PathBuf,
}

impl Installed {
    /// The one in this directory.
    pub fn at(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Where a path of the root is on this machine.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// What the installed unit starts, with these options behind it, under the unit's restrictions.
    pub fn start(&self, options: &[&str]) -> Result<Command> {
        let place = Place::Root(&self.root);
        evictscope_sandbox::command(&self.unit()?, place, &[crate::UNDER_UNIT], options)
    }

    /// Fails unless this process is the installed program, and is under the restrictions of the unit.
    pub fn must_be(&self, pid: u32) -> Result<()> {
        let unit = self.unit()?;
        let (program, _) = unit.start()?;
        let same = |path: &Path| {
            let file = fs::metadata(path);
            let file = file.with_context(|| format!("cannot look at {}", path.display()))?;
            anyhow::Ok((file.dev(), file.ino()))
        };
        ensure!(
            same(Path::new(&format!("/proc/{pid}/exe")))? == same(&self.path(program))?,
            "process {pid} is not the installed {program}"
        );
        must_be_kept(pid, &unit, self.id_of(unit.one("User")?)?)
    }

    fn unit(&self) -> Result<Unit> {
        Unit::read(&self.path("/usr/lib/systemd/system/evictscope.service"))
    }

    /// The number of one of the root's users.
    fn id_of(&self, user: &str) -> Result<u32> {
        let users = fs::read_to_string(self.path("/etc/passwd"));
        let users = users.context("cannot read the root's list of users")?;
        let mut entries = users.lines().map(|line| line.split(':'));
        let number =
            entries.find_map(|mut entry| (entry.next() == Some(user)).then(|| entry.nth(1))?);
        let number = number.with_context(|| format!("the root has no user {user}"))?;
        number.parse().context("a user without a number")
    }
}
