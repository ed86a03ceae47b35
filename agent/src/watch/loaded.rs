//! What the daemon has the kernel load before it gives up capabilities. `evictscope check` tries the same.

use std::sync::Arc;

use anyhow::Context as _;
use evictscope_probes::{ProbeError, Probes, Sampler, SocketIterator};
use evictscope_telemetry::HitCosts;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::CapabilitySet;

use super::privileges;

/// Everything that is loaded into the kernel.
pub struct Loaded {
    /// Looks at connections.
    pub sockets: Result<SocketIterator, ProbeError>,
    /// The probes. They have been tried on this process.
    pub probes: Arc<Probes>,
    /// What one of their hits costs here.
    pub costs: HitCosts,
    /// Takes samples of main threads.
    pub sampler: Result<Sampler, ProbeError>,
    /// The capabilities that this process has kept.
    pub kept: CapabilitySet,
}

impl Loaded {
    /// Loads it all, and then gives up the capabilities that watching servers does not need. Call it before any thread
    /// is started.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not let this process attach probes. Without the others, everything else works.
    pub fn load() -> anyhow::Result<Self> {
        open_as_many_files_as_allowed();
        let sockets = SocketIterator::load();
        let run_delay = (sockets.as_ref().ok()).and_then(SocketIterator::run_delay);
        let (probes, costs) = Probes::load_and_calibrate(run_delay)?;
        let sampler = Sampler::load();
        let to_attach = privileges::to_attach(&probes);
        let kept = privileges::drop_unneeded(to_attach).context("cannot give up capabilities")?;
        Ok(Self { sockets, probes, costs, sampler, kept })
    }
}

/// Raises the limit of open files to the highest that this process may have: a container may start with 1,024, and
/// Kubernetes has no setting for it. The limit stays if raising it is forbidden, as it is by the unit, which sets it
/// itself.
fn open_as_many_files_as_allowed() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: maximum, maximum };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, "the limit of open files stays");
    }
}
