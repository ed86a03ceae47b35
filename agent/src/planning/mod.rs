//! Makes plans and unwind tables, in a process of its own for each file.
//!
//! Neither an executable nor its file system is trusted. So this process never opens one for reading, which may wait
//! forever; it starts itself anew ([`process`]) with the file as standard input, or with its path. That process opens
//! the file and what may be its debug file, gives up all its rights, and only then reads, plans and answers
//! ([`mod@answer`]). The daemon uses [`Planner`].

mod answer;
mod planner;
mod process;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use borsh::BorshDeserialize;
use evictscope_host::{Executable, ProcessHandle, ProcessIdentity, debug_places, root_of};
use evictscope_model::answers::UnwatchedReason;
use evictscope_plan::CodeFile;
use procfs::ProcError;
use procfs::process::Process;

use answer::Identified;
pub use answer::{Planned, PlannerArguments, answer};
pub use planner::Planner;

#[derive(clap::Args)]
pub struct DebugDirs {
    /// Look for separate debug files below DIR (.build-id/xx/yyyy.debug, or the path of the executable) before
    /// /usr/lib/debug; may be given several times
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
}

pub struct PlanRequest<'a> {
    pub executable: &'a Executable,
    /// Its path below `root`.
    pub exe: &'a Path,
    /// The root directory of its debug files.
    pub root: &'a Path,
    /// Where to look for debug files first.
    pub debug_dirs: &'a [PathBuf],
}

/// Why there is no plan.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Failure {
    pub reason: UnwatchedReason,
    /// Whether that will not change later.
    pub is_for_good: bool,
    /// What went wrong, for people.
    pub why: String,
}

impl PlanRequest<'_> {
    /// Plans for it. With `function` also finds the function of this name. Fails if it cannot be read in time, is not a
    /// server's executable, or has no such function.
    pub fn plan(&self, function: Option<&str>) -> Result<Planned, Failure> {
        self.plan_identified(self.identify()?, function)
    }

    fn identify(&self) -> Result<Identified, Failure> {
        let waits = (self.executable.id().file.device, None);
        process::ask(Some(self.executable), self.exe, waits, ["--identify".into()])
    }

    /// Reads how its stacks are unwound. Fails as [`Self::plan`].
    pub fn code(&self) -> Result<CodeFile, Failure> {
        self.ask(self.identify()?, Some("--code".into()))
    }

    fn plan_identified(&self, identified: Identified, function: Option<&str>) -> Result<Planned, Failure> {
        let planned: Planned = self.ask(identified, function.map(|name| format!("--function={name}").into()))?;
        if planned.is_possible(self.executable) {
            return Ok(planned);
        }
        let why = format!("what was said of {} cannot be a plan", self.exe.display());
        Err(Failure { reason: UnwatchedReason::Planning, is_for_good: true, why })
    }

    fn ask<T: BorshDeserialize>(&self, identified: Identified, option: Option<OsString>) -> Result<T, Failure> {
        let places =
            (identified.names.iter()).flat_map(|names| debug_places(self.debug_dirs, names, self.exe, self.root));
        let debug_files = places.flat_map(|place| [place.root, place.path].map(OsString::from));
        let waits = (self.executable.id().file.device, Some(self.root.to_owned()));
        process::ask(Some(self.executable), self.exe, waits, option.into_iter().chain(debug_files))
    }
}

/// Reads how stacks are unwound in files that a process has mapped: each path below `root`, if the file there has this
/// inode number. Returns `None` for a file that has no code, or is another one. Fails if they cannot be read in time.
pub fn code_of_mapped(root: &Path, files: &[(&Path, u64)]) -> Result<Vec<Option<CodeFile>>, Failure> {
    let waits = (0, Some(root.to_owned()));
    let numbers = files.iter().map(|(_, inode)| format!("--mapped={inode}").into());
    process::ask(None, root, waits, numbers.chain(files.iter().flat_map(|(path, _)| [root.into(), (*path).into()])))
}

/// A process that a user names, and what it runs.
pub struct Running {
    pub handle: ProcessHandle,
    /// The name that it was started by, as the kernel keeps it.
    pub command: String,
    /// The path of its executable, as the process sees it.
    pub path: PathBuf,
    pub exe: Executable,
    pid: u32,
}

impl Running {
    /// Opens the process and its executable. Fails if something is not there, and says what to do.
    pub fn find(pid: u32) -> anyhow::Result<Self> {
        let gone = |_| anyhow!("there is no process {pid}: `pidof redis-server` lists those that run");
        let process = Process::new(pid.cast_signed()).map_err(gone)?;
        let handle = ProcessIdentity::read(pid).and_then(ProcessHandle::open).map_err(gone)?;
        let tgid = process.status().map_err(gone)?.tgid.cast_unsigned();
        ensure!(tgid == pid, "{pid} is a thread of process {tgid}: give {tgid} instead");
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
    /// first, and names on stderr those that do not belong to it. Fails as [`PlanRequest::plan`].
    pub fn plan(&self, function: Option<&str>, debug_dirs: &[PathBuf]) -> Result<Planned, Failure> {
        let subject = PlanRequest { executable: &self.exe, exe: &self.path, root: &root_of(self.pid), debug_dirs };
        let planned = subject.plan(function)?;
        planned.say_ignored();
        Ok(planned)
    }
}
