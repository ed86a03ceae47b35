//! Tells one program of one process from every other one.

use std::path::PathBuf;
use std::time::Duration;

use procfs::ProcResult;
use procfs::process::{Process, Stat};
use rustix::time::{ClockId, clock_gettime};

use crate::files::file_id::FileId;

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
pub struct Identity {
    /// Process id in the agent's pid namespace.
    pub pid: u32,
    /// When it started, clock ticks since boot.
    pub start_time_ticks: u64,
    /// Address at which the program's code begins.
    pub text_start: u64,
    /// The file that it executes; `None` if the agent may not look, or it executes none.
    pub executable: Option<FileId>,
}

impl Identity {
    /// Reads the identity of what runs now.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if no process has this pid.
    pub fn read(pid: u32) -> ProcResult<Self> {
        Ok(Self::of(&Process::new(pid.cast_signed())?.stat()?))
    }

    pub(super) fn of(stat: &Stat) -> Self {
        let pid = stat.pid.cast_unsigned();
        Self {
            pid,
            start_time_ticks: stat.starttime,
            text_start: stat.startcode,
            executable: FileId::of(&exe_proc_path(pid)).ok(),
        }
    }

    /// Returns how long ago the process started.
    pub fn age(&self) -> Duration {
        let now = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default();
        let ticks_per_second = procfs::ticks_per_second().max(1);
        let started = Duration::from_millis(self.start_time_ticks * 1_000 / ticks_per_second);
        now.saturating_sub(started)
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use evictscope_testkit::owned::Owned;
    use evictscope_testkit::wait::until;

    use super::{Identity, TEXT_NOT_SHOWN};

    #[test]
    fn another_file_in_place_is_another_identity() -> anyhow::Result<()> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "read line; exec sleep 60"]);
        let (shell, input, _output) = Owned::start_with_pipes(shell.stdin(Stdio::piped()))?;
        let before = until("the shell runs", || {
            let now = Identity::read(shell.pid())?;
            let is_shell = now.executable == super::FileId::of("/bin/sh".as_ref()).ok();
            // The kernel gives a process its new file before it gives it the addresses of the code.
            Ok((is_shell && now.text_start > TEXT_NOT_SHOWN).then_some(now))
        })?;
        assert_eq!(Identity::read(shell.pid())?, before);
        drop(input);
        let after = until("it executes something else", || {
            let now = Identity::read(shell.pid())?;
            Ok((now.executable != before.executable).then_some(now))
        })?;
        assert_eq!(before.start_time_ticks, after.start_time_ticks);
        assert!(!before.is_still(&after));
        // Even if it were at the same addresses.
        let at_the_same = Identity { text_start: before.text_start, ..after };
        assert!(!before.is_still(&at_the_same));
        Ok(())
    }

    #[test]
    fn what_cannot_be_read_makes_no_other_identity() -> anyhow::Result<()> {
        let seen = Identity::read(std::process::id())?;
        assert!(seen.executable.is_some() && seen.text_start > TEXT_NOT_SHOWN);
        let denied = Identity { text_start: TEXT_NOT_SHOWN, executable: None, ..seen };
        assert!(seen.is_still(&denied));
        let later = Identity { start_time_ticks: seen.start_time_ticks + 1, ..denied };
        assert!(!seen.is_still(&later), "another process with the same pid");
        let ending = Identity { text_start: 0, ..denied };
        assert!(!seen.is_still(&ending), "its memory is gone");
        Ok(())
    }
}
