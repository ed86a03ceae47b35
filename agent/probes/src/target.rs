//! What to attach to.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::error::ProbeError;

/// A running process to attach to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Process id.
    pub pid: u32,
    /// The executable that it runs.
    pub exe: BorrowedFd<'a>,
}

/// This very process.
pub struct Own(File);

impl Own {
    /// Opens its executable.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be opened.
    pub fn open() -> Result<Self, ProbeError> {
        let own = File::open("/proc/self/exe");
        own.map(Self).map_err(ProbeError::OwnExecutable)
    }

    /// Returns it as a target.
    pub fn target(&self) -> Target<'_> {
        Target { pid: std::process::id(), exe: self.0.as_fd() }
    }
}
