//! Snapshots added up into totals that only grow, and whether they agree with the probe plan.

pub(crate) mod expire_audit;
pub(crate) mod invariant;
pub(crate) mod latencies;
pub(crate) mod longest;
pub(crate) mod main_thread;
pub(crate) mod refused;
pub(crate) mod server;
pub(crate) mod slow_calls;
pub(crate) mod totals;
pub(crate) mod unhit;
pub(crate) mod use_clock;
pub(crate) mod withdrawal;
