//! What was read of one server at one moment.

use evictscope_abi::{EvictionStats, MemberValues, SampleStats};

/// What was read of one server at one moment. Its counters run since the server was attached,
/// modulo 2^64.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// What the uprobe programs counted.
    pub evictions: EvictionStats,
    /// What the sampling program counted.
    pub samples: SampleStats,
    /// The members as the agent read them itself, where the main thread was off CPU for so long
    /// that the kernel's own reading is stale.
    pub idle_members: Option<MemberValues>,
}
