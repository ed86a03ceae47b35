//! The agent with the user and the capabilities that `packaging/evictscope.service` gives it.
//!
//! `setpriv` applies them, because there is no systemd to ask. Everything else in the unit (the filter of system calls,
//! the read-only file system, the limits of control groups) is absent here.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use procfs::process::{Process, all_processes};

use crate::wait::until_true;
use crate::{process, root};

/// The capabilities that the unit leaves the agent, and their numbers in the kernel's `capability.h`.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_BPF", 39), ("CAP_PERFMON", 38), ("CAP_SYS_PTRACE", 19), ("CAP_DAC_READ_SEARCH", 2)];

const USER: &str = "evictscope";

const PROGRAM: &str = "/usr/bin/evictscope";

/// Where the package installs the unit.
const UNIT: &str = "/usr/lib/systemd/system/evictscope.service";

/// Where the unit's `StateDirectory=` is, which systemd makes.
const STATE: &str = "/var/lib/evictscope";

/// A user and a group without rights of their own, for an agent that is not installed.
pub const NOBODY: u32 = 64_999;

/// Returns a command that runs `program` on this machine, as [`NOBODY`] with the unit's capabilities.
pub fn command(program: &OsStr) -> Command {
    let mut command = Command::new("setpriv");
    give_privileges(&mut command, &NOBODY.to_string());
    command.arg(program);
    command
}

fn give_privileges(setpriv: &mut Command, user: &str) {
    let names = CAPABILITIES.map(|(name, _)| name.replace("CAP_", "+").to_lowercase());
    let capabilities = format!("-all,{}", names.join(","));
    setpriv
        .args(["--reuid", user, "--regid", user, "--clear-groups"])
        .args(["--bounding-set", &capabilities, "--inh-caps", &capabilities])
        .args(["--ambient-caps", &capabilities, "--no-new-privs"]);
}

/// The agent that the package has installed in a root directory.
#[derive(Clone, Debug)]
pub struct Installed(PathBuf);

impl Installed {
    /// Returns the one in this root directory, and makes the directory in which it keeps what it writes. Fails if the
    /// unit in it asks for other privileges than this module gives.
    pub fn at(root: &Path) -> anyhow::Result<Self> {
        let installed = Self(root.to_owned());
        unit_must_ask_for_these_privileges(&installed.path(UNIT))?;
        let mut make = root::enter(root, "install");
        process::answer_of(make.args(["--directory", "--mode=0750", "--owner", USER, "--group", USER, STATE]))?;
        Ok(installed)
    }

    pub fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside.trim_start_matches('/'))
    }

    /// Returns a command that runs `evictscope run` with these options as the unit's user.
    pub fn start(&self, options: &[&str]) -> Command {
        let mut command = root::enter(&self.0, "setpriv");
        give_privileges(&mut command, USER);
        command.args([PROGRAM, "run", "--state-dir", STATE]).args(options);
        command
    }

    /// Checks that a process is the installed program and has the unit's user and privileges.
    pub fn must_be(&self, pid: u32) -> anyhow::Result<()> {
        let file = |path: &Path| {
            let file = fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
            anyhow::Ok((file.dev(), file.ino()))
        };
        ensure!(
            file(Path::new(&format!("/proc/{pid}/exe")))? == file(&self.path(PROGRAM))?,
            "process {pid} is not the installed {PROGRAM}"
        );
        must_have_these_privileges(pid, self.number_in("/etc/passwd")?, self.number_in("/etc/group")?)
    }

    /// Waits until nothing runs as the unit's user: the keeper of an agent that was killed still removes probes.
    pub fn wait_for_end(&self) -> anyhow::Result<()> {
        let user = self.number_in("/etc/passwd")?;
        until_true("all processes of the unit's user end", || {
            let mut statuses = all_processes()?.filter_map(|process| process.ok()?.status().ok());
            Ok(!statuses.any(|status| status.ruid == user))
        })
    }

    /// Returns the number of the unit's user in the root's list of users or of groups.
    fn number_in(&self, list: &str) -> anyhow::Result<u32> {
        let entries = fs::read_to_string(self.path(list)).with_context(|| format!("cannot read the root's {list}"))?;
        let mut entries = entries.lines().map(|line| line.split(':'));
        entries
            .find_map(|mut entry| (entry.next() == Some(USER)).then(|| entry.nth(1))?)
            .and_then(|number| number.parse().ok())
            .with_context(|| format!("the root's {list} has no number for {USER}"))
    }
}

/// What opening executables needs: CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE. The agent passes them on to the processes
/// that plan, which drop them before they read.
const PASSED_ON: u64 = 1 << 2 | 1 << 19;

/// Checks that each thread of a process has this user and this group, holds the unit's capabilities, can pass on only
/// those that opening executables needs, and can gain none.
pub fn must_have_these_privileges(pid: u32, user: u32, group: u32) -> anyhow::Result<()> {
    let allowed = CAPABILITIES.iter().map(|(_, number)| 1 << number).sum();
    for task in Process::new(pid.try_into()?)?.tasks()? {
        let status = task?.status()?;
        let name = &status.name;
        ensure!(
            status.capprm == allowed && status.capeff == allowed,
            "{name} holds the capabilities {:x}",
            status.capprm
        );
        ensure!(
            (status.capinh, status.capamb) == (PASSED_ON, Some(PASSED_ON)) && status.capbnd == Some(allowed),
            "{name} can pass capabilities on, or gain others"
        );
        ensure!(status.nonewprivs == Some(1), "{name} can gain privileges from a program that it executes");
        ensure!(
            status.euid == user && status.egid == group && status.groups.is_empty(),
            "{name} runs as {}:{} with the groups {:?}",
            status.euid,
            status.egid,
            status.groups
        );
    }
    Ok(())
}

/// Checks that a unit has one line for each of the privileges that this module gives, with the same value.
fn unit_must_ask_for_these_privileges(unit: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(unit).with_context(|| format!("cannot read {}", unit.display()))?;
    let capabilities = CAPABILITIES.map(|(name, _)| name).join(" ");
    for (directive, value) in [
        ("ExecStart=", format!("{PROGRAM} run")),
        ("User=", USER.to_owned()),
        ("Group=", USER.to_owned()),
        ("CapabilityBoundingSet=", capabilities.clone()),
        ("AmbientCapabilities=", capabilities),
        ("NoNewPrivileges=", "yes".to_owned()),
        ("StateDirectory=", USER.to_owned()),
    ] {
        let values: Vec<_> = text.lines().filter_map(|line| line.strip_prefix(directive)).collect();
        ensure!(
            values == [value.as_str()],
            "{} has {directive}{values:?}, and the tests start the agent with {value}",
            unit.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_asks_for_the_privileges_that_the_tests_give() -> anyhow::Result<()> {
        let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/evictscope.service");
        unit_must_ask_for_these_privileges(&unit)
    }
}
