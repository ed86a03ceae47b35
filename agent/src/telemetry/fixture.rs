//! Snapshots for tests.

use evictscope_abi::{CallStats, EvictionStats, Fault, SampleStats};

use super::Snapshot;

/// Returns a snapshot of a server that was just attached.
pub fn empty_snapshot() -> Snapshot {
    Snapshot {
        calls: vec![CallStats::default()],
        evictions: EvictionStats::default(),
        samples: SampleStats::default(),
        faults: [0; Fault::ALL.len()],
        idle_members: None,
    }
}
