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
        let user = self.number("/etc/passwd", unit.one("User")?)?;
        let group = self.number("/etc/group", unit.one("Group")?)?;
        must_be_kept(pid, &unit, user, group)
    }

    fn unit(&self) -> Result<Unit> {
        Unit::read(&self.path("/usr/lib/systemd/system/evictscope.service"))
    }

    /// The number of one of the root's users or groups, as the file with them says.
    fn number(&self, list: &str, name: &str) -> Result<u32> {
        let entries = fs::read_to_string(self.path(list));
        let entries = entries.with_context(|| format!("cannot read the root's {list}"))?;
        let mut entries = entries.lines().map(|line| line.split(':'));
        let number =
            entries.find_map(|mut entry| (entry.next() == Some(name)).then(|| entry.nth(1))?);
        let number = number.with_context(|| format!("the root's {list} has no {name}"))?;
        number
            .parse()
            .with_context(|| format!("the root's {list} has no number for {name}"))
    }
}
