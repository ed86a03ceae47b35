//! The servers that the run loop hands to the HTTP server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::telemetry::{BrokenInvariant, Cycle, ProbeMode, ServerState, Timeline};
use evictscope_plan::ProbePlan;

/// What is exported of one server.
#[derive(Clone, Debug)]
pub struct ExportedServer {
    /// Value of the label `server`; no two servers have the same.
    pub label: String,
    /// Process id.
    pub pid: u32,
    /// Its executable, as the process sees it.
    pub exe: PathBuf,
    /// What is probed in it.
    pub plan: Arc<ProbePlan>,
    /// The probe mode that it is in now.
    pub mode: ProbeMode,
    /// Why its plan was withdrawn, where it was: then nothing that rests on the plan is exported.
    pub withdrawn: Option<BrokenInvariant>,
    /// What the probes cost, as a share of the main thread, in the last second.
    pub overhead_ratio: Option<f64>,
    /// What was counted since it was found.
    pub state: ServerState,
    /// Its phases and bursts; `None` where its evicting calls are not seen.
    pub cycle: Option<Cycle>,
    /// Its last ten minutes; `None` where its evicting calls are not seen. Too large to be copied each
    /// time, so the run loop goes on with the same one.
    pub timeline: Option<Arc<Mutex<Timeline>>>,
}

impl ExportedServer {
    /// Returns phases and bursts, where they may be exported: they rest on the plan.
    pub(super) fn cycle(&self) -> Option<&Cycle> {
        self.cycle.as_ref().filter(|_| self.withdrawn.is_none())
    }

    /// Returns the last ten minutes, where they may be exported.
    pub(super) fn timeline(&self) -> Option<MutexGuard<'_, Timeline>> {
        let timeline = self
            .timeline
            .as_ref()
            .filter(|_| self.withdrawn.is_none())?;
        // Numbers only, each of which is right even if a writer panicked.
        Some(timeline.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The servers as the run loop knows them. Clones share the same view; neither side waits for the
/// other longer than it takes to exchange a pointer.
/// Not ready until the first scan is published.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<watch::Sender<Option<Arc<[ExportedServer]>>>>);

impl Shared {
    /// Replaces all servers. The first call, to be made when the first scan is done and its
    /// servers are attached, makes the agent ready.
    pub fn publish(&self, servers: Vec<ExportedServer>) {
        self.0.send_replace(Some(servers.into()));
    }

    /// Waits for the first call of [`Self::publish`].
    pub async fn ready(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(Option::is_some).await;
    }

    /// Returns the servers last published; `None` before the first time.
    pub(super) fn servers(&self) -> Option<Arc<[ExportedServer]>> {
        self.0.borrow().clone()
    }
}
