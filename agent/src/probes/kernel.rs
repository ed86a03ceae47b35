//! The shared structures as aya copies them in and out of maps.

use evictscope_abi::{
    BinRing, CallStats, EvictionStats, FaultCounts, SampleStats, ServerConfig, Updated,
};

/// A structure of `evictscope_abi` in a map.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Shared<T>(pub T);

// SAFETY: `repr(C)`, integers only, so every bit pattern is a value and all of it can be copied.
unsafe impl aya::Pod for Shared<ServerConfig> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<Updated<CallStats>> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<EvictionStats> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<Updated<SampleStats>> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<FaultCounts> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<BinRing> {}
// SAFETY: as above.
unsafe impl aya::Pod for Shared<[BinRing; 2]> {}

impl<T> Shared<T>
where
    Self: aya::Pod,
{
    /// Returns a structure in which nothing is counted.
    pub fn zero() -> Self {
        // SAFETY: `Pod` promises that every bit pattern is a value.
        unsafe { std::mem::zeroed() }
    }
}
