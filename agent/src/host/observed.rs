//! What `/proc` says of one process, as far as it takes to tell whether it is a server.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use procfs::process::{Process, Stat};
use procfs::{ProcError, ProcResult};

/// Most bytes of a command line that are looked at. Its beginning tells whether it is a server's.
const MAX_COMMAND_LINE: u64 = 8192;

/// A process that was forked and has not executed anything since (`PF_FORKNOEXEC`).
const FORKED_NOT_EXECUTED: u32 = 0x40;
/// `PF_KTHREAD`.
const KERNEL_THREAD: u32 = 0x20_0000;

/// What the link `/proc/PID/exe` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExeLink {
    /// A path in the process's own mount namespace, perhaps with ` (deleted)` appended.
    Path(PathBuf),
    /// Another user's process.
    Denied,
    /// A kernel thread, a zombie, or a process that has ended.
    Absent,
}

impl ExeLink {
    pub(super) fn read(pid: u32) -> Self {
        match std::fs::read_link(exe_proc_path(pid)) {
            Ok(path) => Self::Path(path),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Self::Denied,
            Err(_) => Self::Absent,
        }
    }

    /// The last component of the path, as it was before the file was deleted.
    pub(super) fn file_name(&self) -> Option<String> {
        let Self::Path(path) = self else {
            return None;
        };
        let name = path.file_name()?.to_string_lossy();
        Some(name.trim_end_matches(" (deleted)").to_owned())
    }
}

/// What `/proc` says of one process.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub pid: u32,
    pub parent: u32,
    pub state: char,
    pub flags: u32,
    pub start_time_ticks: u64,
    pub text_start: u64,
    pub comm: String,
    pub exe: ExeLink,
    /// The arguments; a server overwrites them with its title, which is then the only one.
    pub arguments: Vec<String>,
}

impl Observed {
    /// Looks at a process. An error mostly means that it has ended.
    pub(super) fn of(pid: u32) -> ProcResult<Self> {
        let process = Process::new(pid.cast_signed())?;
        let stat = process.stat()?;
        let command_line = read_start(process.open_relative("cmdline")?)?;
        Ok(Self::new(pid, stat, ExeLink::read(pid), &command_line))
    }

    fn new(pid: u32, stat: Stat, exe: ExeLink, command_line: &[u8]) -> Self {
        // A title that got shorter is followed by zeros.
        let end = command_line
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let arguments = command_line[..end]
            .split(|byte| *byte == 0)
            .map(|argument| String::from_utf8_lossy(argument).into_owned())
            .collect();
        Self {
            pid,
            parent: stat.ppid.cast_unsigned(),
            state: stat.state,
            flags: stat.flags,
            start_time_ticks: stat.starttime,
            text_start: stat.startcode,
            comm: stat.comm,
            exe,
            arguments,
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X') && self.flags & KERNEL_THREAD == 0
    }

    pub(super) fn is_forked(&self) -> bool {
        self.flags & FORKED_NOT_EXECUTED != 0
    }

    /// The first argument: the program's name, or a server's title.
    pub(super) fn title(&self) -> &str {
        self.arguments.first().map_or("", String::as_str)
    }

    /// The last component of the first word of the title.
    pub(super) fn title_name(&self) -> &str {
        file_name(self.title().split_whitespace().next().unwrap_or(""))
    }

    /// The port in a title such as `redis-server *:6379 [cluster]`.
    pub(super) fn title_port(&self) -> Option<u16> {
        let address = self.title().split_whitespace().nth(1)?;
        address.rsplit_once(':')?.1.parse().ok()
    }
}

/// The last component of a path.
pub(super) fn file_name(path: &str) -> &str {
    Path::new(path)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or("")
}

/// The path through which a process's executable can be opened wherever it is, also when it was
/// deleted or replaced.
pub(super) fn exe_proc_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

fn read_start(file: File) -> ProcResult<Vec<u8>> {
    let mut start = Vec::new();
    file.take(MAX_COMMAND_LINE)
        .read_to_end(&mut start)
        .map_err(|error| ProcError::Io(error, None))?;
    Ok(start)
}
