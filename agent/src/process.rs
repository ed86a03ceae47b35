//! A process that a user names, and what it runs.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use evictscope_host::{Executable, Identity, ProcessHandle, root_of};
use procfs::ProcError;
use procfs::process::Process;

use crate::planning::{Failure, Planned, Subject};

/// A process, and what it runs.
pub struct Running {
    pub handle: ProcessHandle,
    /// The name that it was started by, as the kernel keeps it.
    pub command: String,
    /// The path of its executable, as the process sees it.
    pub path: PathBuf,
    /// Its executable, open.
    pub exe: Executable,
    pid: u32,
}

impl Running {
    /// Opens the process and its executable.
    ///
    /// # Errors
    ///
    /// Fails if something is not there, and says what to do.
    pub fn find(pid: u32) -> anyhow::Result<Self> {
        let gone = |_| anyhow!("there is no process {pid}: `pidof redis-server` lists those that run");
        let process = Process::new(pid.cast_signed()).map_err(gone)?;
        let handle = Identity::read(pid).and_then(ProcessHandle::open);
        let handle = handle.map_err(gone)?;
        let tgid = process.status().map_err(gone)?.tgid.cast_unsigned();
        if tgid != pid {
            bail!("{pid} is a thread of process {tgid}: give {tgid} instead");
        }
        let path = process.exe().map_err(|error| match error {
            ProcError::PermissionDenied(_) => anyhow!(
                "may not read the executable of process {pid}: run as root, or with the capabilities that --help names"
            ),
            _ => anyhow!("process {pid} has no executable: it is a kernel thread, or about to end"),
        })?;
        let exe = Executable::of_process(pid)?;
        Ok(Self { handle, command: process.stat().map_err(gone)?.comm, path, exe, pid })
    }

    /// Plans for it; with `function` also finds the function of this name. Looks for debug files below `debug_dirs`
    /// first, and names on stderr those that do not belong to it.
    ///
    /// # Errors
    ///
    /// As [`Subject::plan`].
    pub fn plan(&self, function: Option<&str>, debug_dirs: &[PathBuf]) -> Result<Planned, Failure> {
        let subject = Subject { executable: &self.exe, exe: &self.path, root: &root_of(self.pid), debug_dirs };
        let planned = subject.plan(function)?;
        planned.say_ignored();
        Ok(planned)
    }
}
