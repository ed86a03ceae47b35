//! Asks the kernel whether a process has ended.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use procfs::process::Process;
use procfs::{ProcError, ProcResult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::identity::Identity;

/// A handle to a process, which no later one with the same pid can take over. It needs no privilege.
#[derive(Debug)]
pub struct ProcessHandle {
    identity: Identity,
    /// Readable once the process has ended. Older sandboxes do not allow one.
    pidfd: Option<OwnedFd>,
}

impl ProcessHandle {
    /// Opens the process with this identity.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if that process has ended. Fails if `/proc/PID/stat` cannot be read.
    pub fn open(identity: Identity) -> ProcResult<Self> {
        let pid = Pid::from_raw(identity.pid.cast_signed()).ok_or(ProcError::NotFound(None))?;
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Err(Errno::SRCH) => return Err(ProcError::NotFound(None)),
            pidfd => pidfd.ok(),
        };
        // Checked only now, because the pid could go to another process until it was opened.
        match has_gone(&identity)? {
            true => Err(ProcError::NotFound(None)),
            false => Ok(Self { identity, pidfd }),
        }
    }

    /// Returns the identity that it was opened with.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns whether the kernel says that the process has ended. No other error counts as an end: a
    /// process that cannot be looked at now still runs.
    ///
    /// A process that executes another program has not ended.
    pub fn has_ended(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return has_gone(&self.identity).unwrap_or(false);
        };
        let now = Timespec::default();
        poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// A process of which nothing can be read any more, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    /// It has not ended yet, and is about to: it frees its memory.
    Exiting,
    /// It has ended, and its parent has yet to take its exit code, which is this one, as `wait(2)` has it.
    Zombie(i32),
    /// Nothing is left of it.
    Nothing,
    /// It lives: it executes another program.
    AnotherProgram,
}

/// `PF_EXITING` of the kernel's `sched.h`.
const EXITING: u32 = 4;

impl ProcessHandle {
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

    /// Returns its pidfd, if it has one.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(|pidfd| pidfd.as_fd())
    }
}

/// Two are equal if they refer to the same program of the same process.
impl PartialEq for ProcessHandle {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl Eq for ProcessHandle {}

/// Returns whether a process has ended according to `/proc/PID/stat`.
fn has_gone(identity: &Identity) -> ProcResult<bool> {
    match Process::new(identity.pid.cast_signed()).and_then(|process| process.stat()) {
        Ok(stat) => Ok(stat.starttime != identity.start_time_ticks || matches!(stat.state, 'Z' | 'X')),
        Err(ProcError::NotFound(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use evictscope_testkit::wait::until;
    use procfs::ProcError;

    use super::{Identity, ProcessHandle, Remains};

    /// Ends a process and checks that the handle says so when it is a zombie, and when nothing is left.
    fn sees_the_end(mut process: Child, handle: &ProcessHandle) -> anyhow::Result<()> {
        let was_running = !handle.has_ended();
        process.kill()?;
        let ended = || Ok(handle.has_ended().then_some(()));
        let as_zombie = until("a zombie has ended", ended);
        let remains = handle.remains();
        process.wait()?;
        as_zombie?;
        assert_eq!((remains, handle.remains()), (Remains::Zombie(9), Remains::Nothing));
        assert!(was_running && handle.has_ended());
        Ok(())
    }

    #[test]
    fn a_process_ends_when_the_kernel_says_so_also_without_a_pidfd() -> anyhow::Result<()> {
        for has_pidfd in [true, false] {
            let process = Command::new("sleep").arg("60").spawn()?;
            let mut handle = ProcessHandle::open(Identity::read(process.id())?)?;
            assert!(handle.pidfd.is_some());
            handle.pidfd = handle.pidfd.filter(|_| has_pidfd);
            sees_the_end(process, &handle)?;
        }
        Ok(())
    }

    #[test]
    fn a_pid_that_went_to_another_process_is_not_taken_hold_of() -> anyhow::Result<()> {
        let own = Identity::read(std::process::id())?;
        let earlier = Identity { start_time_ticks: own.start_time_ticks - 1, ..own };
        let opened = ProcessHandle::open(earlier);
        assert!(matches!(opened, Err(ProcError::NotFound(_))), "{opened:?}");
        Ok(())
    }
}
