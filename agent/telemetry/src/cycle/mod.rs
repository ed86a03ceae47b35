//! Phases and bursts of the eviction cycle, and how far a server is from it.

pub(crate) mod activity;
pub(crate) mod burst_totals;
pub(crate) mod bursts;
pub(crate) mod expired_share;
mod lab_costs;
pub(crate) mod margins;
pub(crate) mod open_burst;
pub(crate) mod phases;
pub(crate) mod reclaim;
pub(crate) mod seconds;
pub(crate) mod state_machine;
