//! Tells one program of one process from every other one, and whether it has ended.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::{Process, Stat};
use procfs::{ProcError, ProcResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, makedev, statx};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::{ClockId, clock_gettime};

/// What the kernel gives as the address of the code if we may not see it (`do_task_stat()` in
/// `fs/proc/array.c`). A process without memory has 0: it is about to end.
const TEXT_NOT_SHOWN: u64 = 1;

/// Which program of which process.
///
/// A process that executes another file in place keeps its pid and start time, but has another executable. If it
/// executes the *same* file again, as a server does at `DEBUG RESTART`, its addresses usually differ. If the
/// file is not position-independent, they do not, and the identity stays the same: only an open `/proc/PID/mem`
/// shows that the memory is new, because it ends with the old memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Process id in the agent's pid namespace.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Address at which the program's code begins.
    pub text_start: u64,
    /// The file that it executes; `None` if the agent may not look, or it executes none.
    pub executable: Option<FileId>,
}

impl ProcessIdentity {
    /// Reads the identity of what runs now. Fails with `NotFound` if no process has this pid.
    pub fn read(pid: u32) -> ProcResult<Self> {
        Ok(Self::of(&Process::new(pid.cast_signed())?.stat()?))
    }

    pub(crate) fn of(stat: &Stat) -> Self {
        let pid = stat.pid.cast_unsigned();
        Self {
            pid,
            start_time_ticks: stat.starttime,
            text_start: stat.startcode,
            executable: FileId::of(&exe_proc_path(pid)).ok(),
        }
    }

    pub fn age(&self) -> Duration {
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let started = self.start_time_ticks * 1_000 / procfs::ticks_per_second().max(1);
        now.saturating_sub(Duration::from_millis(started))
    }

    /// Returns whether this program still ran when `now` was read. What could not be read is assumed unchanged.
    pub(crate) fn is_still(&self, now: &Self) -> bool {
        self.pid == now.pid
            && self.start_time_ticks == now.start_time_ticks
            && (self.text_start == now.text_start || now.text_start == TEXT_NOT_SHOWN)
            && (self.executable == now.executable || now.executable.is_none())
    }
}

/// Returns the path that opens a process's executable even after it was deleted or replaced.
pub(crate) fn exe_proc_path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/exe"))
}

/// Which file it is, whatever it is called, and even if it no longer has a name. Another file can get the
/// same numbers only once nothing uses this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
}

impl FileId {
    /// Finds the file that a path leads to, without reading from it.
    pub fn of(path: &Path) -> io::Result<Self> {
        // A file system in user space (FUSE) may never answer, and it need not be asked for these two.
        Ok(Self::from(&statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO)?))
    }
}

impl From<&Statx> for FileId {
    fn from(found: &Statx) -> Self {
        Self { device: makedev(found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }
    }
}

/// A handle to a process, which no later one with the same pid can take over. It needs no privilege.
#[derive(Debug)]
pub struct ProcessHandle {
    identity: ProcessIdentity,
    /// Readable once the process has ended. Older sandboxes do not allow one.
    pidfd: Option<OwnedFd>,
}

impl ProcessHandle {
    /// Opens the process with this identity. Fails with `NotFound` if that process has ended. Fails if `/proc/PID/stat`
    /// cannot be read.
    pub fn open(identity: ProcessIdentity) -> ProcResult<Self> {
        let pid = Pid::from_raw(identity.pid.cast_signed()).ok_or(ProcError::NotFound(None))?;
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Err(ProcError::NotFound(None)),
            pidfd => pidfd.ok(),
        };
        // Checked only now, because the pid could go to another process until it was opened.
        if has_gone(&identity)? {
            return Err(ProcError::NotFound(None));
        }
        Ok(Self { identity, pidfd })
    }

    pub fn identity(&self) -> &ProcessIdentity {
        &self.identity
    }

    /// Returns whether the kernel says that the process has ended. No other error counts as an end: a
    /// process that cannot be looked at now still runs.
    ///
    /// A process that executes another program has not ended.
    pub fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return has_gone(&self.identity).unwrap_or(false) };
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// Returns what is left of it. What cannot be read is taken to be gone.
    pub fn remains(&self) -> Remains {
        let stat = Process::new(self.identity.pid.cast_signed()).and_then(|process| process.stat());
        match stat.ok().filter(|stat| stat.starttime == self.identity.start_time_ticks) {
            None => Remains::Nothing,
            Some(stat) if matches!(stat.state, 'Z' | 'X') => match stat.exit_code {
                // The main thread alone has ended.
                _ if !self.has_ended() => Remains::Exiting,
                Some(code) => Remains::Zombie(code),
                None => Remains::Nothing,
            },
            Some(stat) if stat.flags & EXITING != 0 => Remains::Exiting,
            Some(_) => Remains::AnotherProgram,
        }
    }

    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }
}

/// A process of which nothing can be read any more, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// It has not ended yet, and is about to: it frees its memory.
    Exiting,
    /// It has ended, and its parent has yet to take its exit code, which is this one, as `wait(2)` has it.
    Zombie(i32),
    Nothing,
    /// It lives: it executes another program.
    AnotherProgram,
}

/// `PF_EXITING` of the kernel's `sched.h`.
const EXITING: u32 = 4;

/// Two are equal if they refer to the same program of the same process.
impl PartialEq for ProcessHandle {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for ProcessHandle {}

fn has_gone(identity: &ProcessIdentity) -> ProcResult<bool> {
    match Process::new(identity.pid.cast_signed()).and_then(|process| process.stat()) {
        Ok(stat) => Ok(stat.starttime != identity.start_time_ticks || matches!(stat.state, 'Z' | 'X')),
        Err(ProcError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use evictscope_testkit::process::Owned;
    use evictscope_testkit::wait::until;
    use procfs::ProcError;

    use super::{FileId, ProcessHandle, ProcessIdentity, Remains, TEXT_NOT_SHOWN};

    #[test]
    fn another_file_in_place_is_another_identity() -> anyhow::Result<()> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read line; exec sleep 60"]);
        let (shell, input, _output) = Owned::start_with_pipes(shell.stdin(Stdio::piped()))?;
        let before = until("the shell runs", || {
            let now = ProcessIdentity::read(shell.pid())?;
            let is_shell = now.executable == FileId::of("/bin/sh".as_ref()).ok();
            // The kernel gives a process its new file before it gives it the addresses of the code.
            Ok((is_shell && now.text_start > TEXT_NOT_SHOWN).then_some(now))
        })?;
        assert_eq!(ProcessIdentity::read(shell.pid())?, before);
        drop(input);
        let after = until("it executes something else", || {
            let now = ProcessIdentity::read(shell.pid())?;
            Ok((now.executable != before.executable).then_some(now))
        })?;
        assert_eq!(before.start_time_ticks, after.start_time_ticks);
        assert!(!before.is_still(&after));
        // Even if it were at the same addresses.
        let at_the_same = ProcessIdentity { text_start: before.text_start, ..after };
        assert!(!before.is_still(&at_the_same));
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_makes_no_other_identity() -> anyhow::Result<()> {
        let seen = ProcessIdentity::read(std::process::id())?;
        assert!(seen.executable.is_some() && seen.text_start > TEXT_NOT_SHOWN);
        let denied = ProcessIdentity { text_start: TEXT_NOT_SHOWN, executable: None, ..seen };
        assert!(seen.is_still(&denied));
        let later = ProcessIdentity { start_time_ticks: seen.start_time_ticks + 1, ..denied };
        assert!(!seen.is_still(&later), "another process with the same pid");
        let ending = ProcessIdentity { text_start: 0, ..denied };
        assert!(!seen.is_still(&ending), "its memory is gone");
        Ok(())
    }

    #[test]
    fn a_file_keeps_its_id_and_no_other_has_it() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (path, moved) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&path, "one")?;
        let file = FileId::of(&path)?;
        assert_eq!(FileId::of(&path)?, file);
        std::fs::rename(&path, &moved)?;
        std::fs::write(&path, "one")?;
        assert_eq!(FileId::of(&moved)?, file);
        assert_ne!(FileId::of(&path)?, file);
        Ok(())
    }

    #[test]
    fn a_process_ends_when_the_kernel_says_so_also_without_a_pidfd() -> anyhow::Result<()> {
        for has_pidfd in [true, false] {
            let mut process = Command::new("sleep").arg("60").spawn()?;
            let mut handle = ProcessHandle::open(ProcessIdentity::read(process.id())?)?;
            assert!(handle.pidfd.is_some());
            handle.pidfd = handle.pidfd.filter(|_| has_pidfd);
            let was_running = !handle.has_ended();
            process.kill()?;
            let as_zombie = until("a zombie has ended", || Ok(handle.has_ended().then_some(())));
            let remains = handle.remains();
            process.wait()?;
            as_zombie?;
            assert_eq!((remains, handle.remains()), (Remains::Zombie(9), Remains::Nothing));
            assert!(was_running && handle.has_ended());
        }
        Ok(())
    }

    #[test]
    fn a_pid_that_went_to_another_process_is_not_taken_hold_of() -> anyhow::Result<()> {
        let identity = ProcessIdentity::read(std::process::id())?;
        let earlier = ProcessIdentity { start_time_ticks: identity.start_time_ticks - 1, ..identity };
        let opened = ProcessHandle::open(earlier);
        assert!(matches!(opened, Err(ProcError::NotFound(_))), "{opened:?}");
        Ok(())
    }
}
