//! Hands the watched servers to the exporter.

use super::watched::Watched;
use crate::export::{ExportedServer, Shared};

/// Publishes all watched servers, by ascending pid.
pub fn publish<'a>(shared: &Shared, watched: impl Iterator<Item = &'a Watched>) {
    let mut servers: Vec<ExportedServer> = watched.map(exported).collect();
    servers.sort_by_key(|server| server.pid);
    shared.publish(servers);
}

/// Returns what is exported of a server.
pub fn exported(watched: &Watched) -> ExportedServer {
    ExportedServer {
        label: watched.label.clone(),
        pid: watched.process.identity.pid,
        exe: watched.process.exe.clone(),
        plan: watched.plan.clone(),
        mode: watched.mode,
        withdrawn: watched.withdrawn.map(|withdrawal| withdrawal.broken),
        overhead_ratio: watched.overhead.ratio(),
        state: watched.state.clone(),
        cycle: watched.cycle.clone(),
        timeline: watched.timeline.clone(),
    }
}
