//! Reads from `/proc` what shows whether a process is a server.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use procfs::ProcResult;
use procfs::process::Process;

use crate::process::{ProcessIdentity, exe_proc_path};

/// How many bytes of a command line are read. Its beginning tells whether it is a server's.
const MAX_COMMAND_LINE: u64 = 8192;

/// The flag of a process that was forked and has not executed anything since (`PF_FORKNOEXEC`).
const FORKED_NOT_EXECUTED: u32 = 0x40;
/// The flag of a kernel thread (`PF_KTHREAD`).
const KERNEL_THREAD: u32 = 0x20_0000;

/// The target of the link `/proc/PID/exe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExeLink {
    /// A path in the process's own mount namespace, perhaps with ` (deleted)` appended.
    Path(PathBuf),
    /// Another user's process.
    Denied,
    /// A kernel thread, a zombie, or a process that has ended.
    Absent,
}

impl ExeLink {
    pub(crate) fn read(pid: u32) -> Self {
        match std::fs::read_link(exe_proc_path(pid)) {
            Ok(path) => Self::Path(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::Denied,
            Err(_) => Self::Absent,
        }
    }

    /// Returns the last component of the path, as it was before the file was deleted.
    pub(crate) fn file_name(&self) -> Option<String> {
        let Self::Path(path) = self else { return None };
        Some(path.file_name()?.to_string_lossy().trim_end_matches(" (deleted)").to_owned())
    }

    /// Returns whether it is a loader, which takes the program as an argument: `ld.so ./redis-server`.
    pub(crate) fn is_loader(&self) -> bool {
        let name = self.file_name().unwrap_or_default();
        name.ends_with(".so") || name.contains(".so.")
    }
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug)]
pub(crate) struct ObservedProcess {
    pub identity: ProcessIdentity,
    pub parent: u32,
    pub state: char,
    pub flags: u32,
    pub comm: String,
    pub exe: ExeLink,
    /// The arguments, without those of a loader; a server overwrites them with its title, which is then the only one.
    pub arguments: Vec<String>,
}

impl ObservedProcess {
    /// Reads one process. An error usually means that it has ended.
    pub(crate) fn of(pid: u32) -> ProcResult<Self> {
        let process = Process::new(pid.cast_signed())?;
        let stat = process.stat()?;
        let mut command_line = Vec::new();
        process.open_relative("cmdline")?.take(MAX_COMMAND_LINE).read_to_end(&mut command_line)?;
        // A title that got shorter is followed by zeros.
        let command_line = String::from_utf8_lossy(&command_line);
        let arguments = command_line.trim_end_matches('\0').split('\0');
        let exe = ExeLink::read(pid);
        let before = if exe.is_loader() { of_loader(arguments.clone()) } else { 0 };
        Ok(Self {
            identity: ProcessIdentity::of(&stat),
            parent: stat.ppid.cast_unsigned(),
            state: stat.state,
            flags: stat.flags,
            comm: stat.comm,
            exe,
            arguments: arguments.skip(before).map(str::to_owned).collect(),
        })
    }

    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') && self.flags & KERNEL_THREAD == 0
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.flags & FORKED_NOT_EXECUTED != 0
    }

    /// Returns the first argument: the program's name, or a server's title.
    pub(crate) fn title(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// Returns the last component of the first word of the title.
    pub(crate) fn title_name(&self) -> &str {
        file_name(self.title().split_whitespace().next().unwrap_or(""))
    }

    /// Returns the port in a title such as `redis-server *:6379 [cluster]`.
    pub(crate) fn title_port(&self) -> Option<u16> {
        self.title().split_whitespace().nth(1)?.rsplit_once(':')?.1.parse().ok()
    }
}

/// Counts a loader's arguments before the program that it loads (`ld.so(8)`): its own name, and options, of which all
/// but one have a value.
fn of_loader<'a>(arguments: impl Iterator<Item = &'a str>) -> usize {
    let mut count = 1;
    for (index, argument) in arguments.enumerate() {
        if index == count && argument.starts_with("--") {
            count += if argument == "--inhibit-cache" { 1 } else { 2 };
        }
    }
    count
}

pub(crate) fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or("")
}
