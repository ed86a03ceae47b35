//! What was read of one server at one moment.

use evictscope_abi::{CallStats, EvictionStats, FaultCounts, MemberValues, SampleStats};

/// What was read of one server at one moment. Its counters run since the server was attached to,
/// modulo 2^64.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What was counted of each traced function's calls, the eviction call first.
    pub calls: Vec<CallStats>,
    /// What else was counted of eviction calls.
    pub evictions: EvictionStats,
    /// What the sampling program counted.
    pub samples: SampleStats,
    /// What the programs could not read or count.
    pub faults: FaultCounts,
    /// The members as the agent read them itself, where the main thread was off CPU for so long
    /// that the kernel's own reading is stale.
    pub idle_members: Option<MemberValues>,
}
