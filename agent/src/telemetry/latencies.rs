//! The durations of evicting calls, second by second.

use serde::{Deserialize, Serialize};

/// The evicting calls that ended in one second.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySecond {
    /// The second, since 1970.
    pub unix_s: u64,
    /// Calls by bucket: the index of the bucket (`evictscope_abi::bounds`, the exported ones) and how many calls fell into
    /// it; buckets without calls are left out.
    pub counts: Vec<(u16, u64)>,
}
