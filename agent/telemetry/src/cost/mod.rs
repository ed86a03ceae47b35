//! What the probes cost a server, and which are placed as a result.

pub(crate) mod auto_mode;
pub(crate) mod budget;
pub(crate) mod correction;
pub(crate) mod hit_costs;
pub(crate) mod mode;
pub(crate) mod overhead;
pub(crate) mod sampling;
