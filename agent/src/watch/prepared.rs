//! What must be known of a server before probes are placed in it, and why that may fail. `evictscope check` tries the
//! same.

use std::sync::Arc;

use evictscope_host::{
    Executable, ExecutableError, MemoryError, ServerProcess, Words, load_bias, lower_file, runs_code_of,
};
use evictscope_model::answers::UnwatchedReason;
use evictscope_plan::ProbePlan;
use evictscope_probes::PlannedServer;

use super::reading::ServerReader;
use crate::planning::{Failure, Planner};

/// A server in which probes can be placed.
pub struct Prepared {
    pub executable: Arc<Executable>,
    /// What to probe, and where its members are.
    pub plan: Arc<ProbePlan>,
    /// What to add to an address in its file.
    pub load_bias: u64,
    pub reader: ServerReader,
}

pub enum NotWatched {
    /// It has ended, or runs another program by now.
    Gone,
    /// That will not change for as long as it runs.
    ForGood(UnwatchedReason, anyhow::Error),
    /// That may change later.
    ForNow(UnwatchedReason, anyhow::Error),
}

impl Prepared {
    /// Opens a server's memory and executable, and plans. Fails if the server cannot be watched.
    pub fn of(process: &ServerProcess, planner: &Planner) -> Result<Self, NotWatched> {
        // This comes first, so that what is read later is of the program that runs now, or nothing.
        let words = Words::open(process.identity.pid)?;
        let executable = match Executable::of_process(process.identity.pid) {
            Ok(executable) => executable,
            Err(ExecutableError::Gone(_)) => return Err(NotWatched::Gone),
            Err(error) => return Err(NotWatched::for_now(error)),
        };
        Self::running(process, planner, words, executable)
    }

    /// Does the same with the file beneath its executable, if that is on an overlay and the file has the code that is
    /// in its memory. Only a probe tells which of the two it runs.
    pub fn of_lower(process: &ServerProcess, planner: &Planner) -> Option<Self> {
        let pid = process.identity.pid;
        let words = Words::open(pid).ok()?;
        let prepared = Self::running(process, planner, words, lower_file(pid, &process.exe)?).ok()?;
        let bias = prepared.load_bias;
        let places = prepared.plan.sites().map(|site| (site.file_offset, site.address.at(bias)));
        runs_code_of(prepared.reader.words(), &prepared.executable, places).unwrap_or(false).then_some(prepared)
    }

    fn running(
        process: &ServerProcess,
        planner: &Planner,
        words: Words,
        executable: Executable,
    ) -> Result<Self, NotWatched> {
        let pid = process.identity.pid;
        let executable = Arc::new(executable);
        let plan = planner.plan(&executable, &process.exe, pid)?;
        let load_bias = load_bias(pid, plan.identity.entry_point).map_err(NotWatched::for_now)?;
        let reader = ServerReader::new(pid, words, &plan, load_bias);
        Ok(Self { executable, plan, load_bias, reader })
    }

    /// Returns the server as its probes need it.
    pub fn server(&self, pid: u32) -> PlannedServer {
        PlannedServer { pid, exe: self.executable.clone(), load_bias: self.load_bias, plan: self.plan.clone() }
    }
}

impl NotWatched {
    /// Returns the refusal for a reason that may pass.
    pub fn for_now(error: impl Into<anyhow::Error>) -> Self {
        Self::ForNow(UnwatchedReason::Attach, error.into())
    }

    /// Returns why the server is not watched; `None` if it no longer runs.
    pub fn why(&self) -> Option<(UnwatchedReason, String)> {
        match self {
            Self::Gone => None,
            Self::ForGood(reason, why) | Self::ForNow(reason, why) => Some((*reason, format!("{why:#}"))),
        }
    }
}

impl From<Failure> for NotWatched {
    fn from(failure: Failure) -> Self {
        if failure.is_for_good {
            Self::ForGood(failure.reason, failure.into())
        } else {
            Self::ForNow(failure.reason, failure.into())
        }
    }
}

impl From<MemoryError> for NotWatched {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Gone => Self::Gone,
            error @ MemoryError::Denied(_) => Self::ForNow(UnwatchedReason::Permission, error.into()),
            error @ MemoryError::Other(..) => Self::for_now(error),
        }
    }
}
