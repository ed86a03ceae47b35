//! From snapshots to what is known of each server. Pure: no clock of its own, no I/O.
//!
//! A [`Snapshot`] is what was read of one server at one moment; [`ServerState`] accumulates them
//! into totals that only grow, and into the last values of what is not a total. From these follow
//! what the probes cost ([`Overhead`]), the probe mode to be in ([`AutoMode`]), and whether the plan
//! fits the server at all ([`Withdrawal`]).
//!
//! Deliberately absent: reading the maps (`probes`), names and label values (`export`), and for
//! now the phases and bursts of the eviction cycle.

mod accumulator;
mod budget;
#[cfg(test)]
pub mod fixture;
mod members;
mod mode;
mod overhead;
mod snapshot;
mod state;
mod totals;
mod withdrawal;

pub use accumulator::Accumulator;
pub use budget::{AutoMode, OverheadBudget};
pub use members::Members;
pub use mode::ProbeMode;
pub use overhead::{HitCosts, IntervalCost, Overhead, ProbedSites, Stepping};
pub use snapshot::Snapshot;
pub use state::ServerState;
pub use totals::{CallTotals, HistogramTotals};
pub use withdrawal::{BrokenInvariant, Withdrawal};
