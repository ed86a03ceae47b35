//! What the daemon has the kernel load, and the capabilities that it gives up then. `evictscope check` tries the same.

use std::sync::Arc;

use anyhow::Context as _;
use evictscope_host::{LINKS, OTHERS};
use evictscope_probes::{ProbeError, Probes, Sampler, SocketIterator};
use evictscope_telemetry::HitCosts;
use rustix::io;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Everything that is loaded into the kernel.
pub struct Loaded {
    pub sockets: Result<SocketIterator, ProbeError>,
    /// The probes. They have been tried on this process.
    pub probes: Arc<Probes>,
    /// What one of their hits costs here.
    pub costs: HitCosts,
    pub sampler: Result<Sampler, ProbeError>,
    /// The capabilities that this process has kept.
    pub kept: CapabilitySet,
}

impl Loaded {
    /// Loads it all, and then gives up the capabilities that watching servers does not need. Call it before any thread
    /// is started. `with_peers` is whether to look at who the clients are. Fails if the kernel does not let this
    /// process attach probes. Without the others, everything else works.
    pub fn load(with_peers: bool) -> anyhow::Result<Self> {
        open_as_many_files_as_allowed();
        let sockets = SocketIterator::load(with_peers);
        let run_delay = sockets.as_ref().ok().and_then(|sockets| sockets.run_delay);
        let (probes, costs) = Probes::load_and_calibrate(run_delay)?;
        let sampler = Sampler::load();
        let kept = drop_unneeded(to_attach(&probes)).context("cannot give up capabilities")?;
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

/// Returns the capabilities that attaching needs on this kernel, as the probes on the agent itself have shown.
pub fn to_attach(probes: &Probes) -> CapabilitySet {
    if probes.has_multi_links() {
        LINKS
    } else {
        // Not on each kernel: see docs/CONFIGURATION.md.
        LINKS | CapabilitySet::SYS_ADMIN
    }
}

/// Gives up for good all capabilities that attaching to later servers does not need, and returns the remaining ones.
/// `to_attach` is what attaching needs.
///
/// Call it before any thread is started, because each thread has its own capabilities. Fails only if the kernel does; a
/// process may always give up capabilities.
fn drop_unneeded(to_attach: CapabilitySet) -> io::Result<CapabilitySet> {
    let held = capabilities(None)?.permitted;
    let kept = held & needed(held, to_attach);
    // No program is executed but this one (`planning`), and it cannot gain anything.
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            // What opening executables and debug files needs. The ambient capabilities are only these.
            inheritable: kept & OTHERS,
        },
    )?;
    Ok(kept)
}

fn needed(held: CapabilitySet, to_attach: CapabilitySet) -> CapabilitySet {
    if held.contains(to_attach) {
        to_attach | OTHERS
    } else {
        // It includes the others.
        to_attach | OTHERS | CapabilitySet::SYS_ADMIN
    }
}

#[cfg(test)]
mod tests {
    use evictscope_host::{LINKS, OTHERS};
    use rustix::thread::{CapabilitySet, capabilities};

    use super::{drop_unneeded, needed};

    #[test]
    fn the_capabilities_for_attaching_are_kept() {
        let (all, admin) = (CapabilitySet::all(), CapabilitySet::SYS_ADMIN);
        assert_eq!(needed(all, LINKS), LINKS | OTHERS);
        assert_eq!(needed(all, LINKS | admin), LINKS | admin | OTHERS);
        // Without the two that it includes, it must stay.
        assert!(needed(all - LINKS, LINKS).contains(admin));
    }

    #[test]
    fn all_other_capabilities_are_given_up() -> anyhow::Result<()> {
        // Capabilities belong to a thread, so no other test is touched.
        let thread = std::thread::spawn(|| anyhow::Ok((drop_unneeded(LINKS)?, capabilities(None)?)));
        let (kept, now) = thread.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        assert_eq!(now.permitted, kept);
        assert_eq!(now.effective, kept);
        assert_eq!(now.inheritable, kept & OTHERS);
        assert!(!kept.contains(CapabilitySet::DAC_OVERRIDE));
        Ok(())
    }
}
