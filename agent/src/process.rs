//! A process that a user names, and what it runs.

use std::io::{Write as _, stderr};
use std::path::PathBuf;

use anyhow::{anyhow, bail};
use evictscope_host::{Executable, Identity, ProcessHandle, Search, find_debug_file, root_of};
use procfs::ProcError;
use procfs::process::Process;

/// A process, and what it runs.
pub struct Running {
    /// Which process.
    pub handle: ProcessHandle,
    /// The name that it was started by, as the kernel keeps it.
    pub command: String,
    /// The path of its executable, as it sees it.
    pub path: PathBuf,
    /// Its executable, open.
    pub exe: Executable,
    /// All bytes of that.
    pub data: Vec<u8>,
    /// The separate file with its debug information.
    pub debug: Search,
}

impl Running {
    /// Takes hold of the process, and reads what it runs. Debug files are looked for below `debug_dirs` first.
    ///
    /// # Errors
    ///
    /// Says what is not there, and what to do.
    pub fn find(pid: u32, debug_dirs: &[PathBuf]) -> anyhow::Result<Self> {
        let gone =
            |_| anyhow!("there is no process {pid}: `pidof redis-server` tells which there are");
        let process = Process::new(pid.cast_signed()).map_err(gone)?;
        let handle = Identity::read(pid).and_then(ProcessHandle::open);
        let handle = handle.map_err(gone)?;
        let tgid = process.status().map_err(gone)?.tgid.cast_unsigned();
        if tgid != pid {
            bail!("{pid} is a thread of process {tgid}: name that");
        }
        let path = process.exe().map_err(|error| match error {
            ProcError::PermissionDenied(_) => anyhow!(
                "may not look at the executable of process {pid}: run as root, or with the capabilities that --help names"
            ),
            _ => anyhow!("process {pid} has no executable: it is a kernel thread, or about to end"),
        })?;
        let exe = Executable::open(&PathBuf::from(format!("/proc/{pid}/exe")))?;
        let data = exe.read()?;
        let debug = find_debug_file(debug_dirs, &data, &path, &root_of(pid))?;
        for ignored in &debug.ignored {
            // Nobody may read it.
            let _ = writeln!(stderr(), "debug file ignored: {ignored}");
        }
        Ok(Self {
            handle,
            command: process.stat().map_err(gone)?.comm,
            path,
            exe,
            data,
            debug,
        })
    }
}
