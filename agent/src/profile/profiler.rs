//! The thread that takes profiles: it reads the samples, unwinds them, and drops the copied stacks at once.

use std::sync::Arc;

use evictscope_plan::ProbePlan;

use super::Profile;
use crate::host::{Executable, ServerProcess};
use crate::records::NoProfile;

/// Takes profiles. Clones share the thread.
#[derive(Clone, Debug)]
pub struct Profiler {}

/// A profile that is being taken. Dropping it ends it.
#[derive(Debug)]
pub struct Profiling {}

impl Profiler {
    /// Loads the program, and starts the thread: call it before capabilities are given up.
    ///
    /// # Errors
    ///
    /// Fails where the kernel refuses, with what to do about it.
    pub fn start() -> Result<Self, NoProfile> {
        Err(NoProfile("profiles are not taken yet".to_owned()))
    }

    /// Begins to take a profile of the main thread of a server. Several can be taken of one server at the same time.
    ///
    /// # Errors
    ///
    /// Fails where the kernel refuses the event, with the setting to change.
    pub fn begin(
        &self,
        process: &ServerProcess,
        executable: &Arc<Executable>,
        plan: &Arc<ProbePlan>,
        hz: u32,
    ) -> Result<Profiling, NoProfile> {
        let _ = (process, executable, plan, hz);
        Err(NoProfile("profiles are not taken yet".to_owned()))
    }
}

impl Profiling {
    /// Returns what it has cost the main thread so far, nanoseconds.
    pub fn spent_ns(&self) -> u64 {
        0
    }

    /// Ends it, without waiting: no sample is taken any more.
    pub fn stop(&mut self) {}

    /// Returns the profile, once, when it is ready: a moment after [`Self::stop`].
    pub fn taken(&mut self) -> Option<Profile> {
        None
    }
}
