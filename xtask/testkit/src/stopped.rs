//! One thread of another process, stopped.

use anyhow::{Context as _, Result};
use nix::{
    sys::{
        ptrace,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

/// A thread that is stopped while the others of its process run. It goes on when this is dropped.
pub struct Stopped(Pid);

impl Stopped {
    /// Stops the thread with this id.
    pub fn new(tid: u32) -> Result<Self> {
        let thread = Pid::from_raw(tid.try_into()?);
        ptrace::seize(thread, ptrace::Options::empty()).context("cannot trace a thread")?;
        let stopped = Self(thread);
        ptrace::interrupt(thread)?;
        waitpid(thread, Some(WaitPidFlag::__WALL))?;
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // If it has ended, nothing is left to do.
        let _ = ptrace::detach(self.0, None);
    }
}
