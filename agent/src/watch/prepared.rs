//! What must be known of a server before probes are placed in it, and why that may fail. `evictscope check` tries the
//! same.

use std::sync::Arc;

use evictscope_host::{
    Executable, ExecutableError, MemoryError, ServerProcess, Words, load_bias, lower_file, runs_code_of,
};
use evictscope_model::answers::UnwatchedReason;
use evictscope_probes::PlannedServer;

use super::reading::ServerReader;
use crate::planning::{Failure, Planner};

/// A server in which probes can be placed.
pub struct Prepared {
    pub server: PlannedServer,
    pub reader: ServerReader,
}

/// Why a server is not watched; `None` if it has ended, or runs another program by now.
pub struct NotWatched(pub Option<Failure>);

impl Prepared {
    /// Opens a server's memory and executable, and plans. Fails if the server cannot be watched.
    pub fn of(process: &ServerProcess, planner: &Planner) -> Result<Self, NotWatched> {
        // This comes first, so that what is read later is of the program that runs now, or nothing.
        let words = Words::open(process.identity.pid)?;
        let executable = match Executable::of_process(process.identity.pid) {
            Ok(executable) => executable,
            Err(ExecutableError::Gone(_)) => return Err(NotWatched(None)),
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
        let PlannedServer { exe, load_bias, plan, .. } = &prepared.server;
        let places = plan.sites().map(|site| (site.file_offset, site.address.at(*load_bias)));
        runs_code_of(prepared.reader.words(), exe, places).unwrap_or(false).then_some(prepared)
    }

    fn running(
        process: &ServerProcess,
        planner: &Planner,
        words: Words,
        executable: Executable,
    ) -> Result<Self, NotWatched> {
        let pid = process.identity.pid;
        let plan = planner.plan(&executable, &process.exe, pid)?;
        let load_bias = load_bias(pid, plan.identity.entry_point).map_err(NotWatched::for_now)?;
        let reader = ServerReader::new(pid, words, &plan, load_bias);
        Ok(Self { server: PlannedServer { pid, exe: Arc::new(executable), load_bias, plan }, reader })
    }
}

impl NotWatched {
    /// Returns the refusal for a reason that may pass.
    pub fn for_now(error: impl Into<anyhow::Error>) -> Self {
        Self::refused(UnwatchedReason::Attach, error.into())
    }

    fn refused(reason: UnwatchedReason, why: anyhow::Error) -> Self {
        Self(Some(Failure { reason, is_for_good: false, why: format!("{why:#}") }))
    }
}

impl From<Failure> for NotWatched {
    fn from(failure: Failure) -> Self {
        Self(Some(failure))
    }
}

impl From<MemoryError> for NotWatched {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Gone => Self(None),
            MemoryError::Denied(_) => Self::refused(UnwatchedReason::Permission, error.into()),
            MemoryError::Other(..) => Self::for_now(error),
        }
    }
}
