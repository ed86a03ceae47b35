//! What the probes cost a server, and which are placed as a result.

pub(crate) mod auto_mode;
pub(crate) mod correction;
pub(crate) mod hit_costs;
pub(crate) mod overhead;
