//! From snapshots to what is known of each server. Pure: no clock of its own, no I/O.
//!
//! A [`Snapshot`] is what was read of one server at one moment; [`ServerState`] accumulates them
//! into totals that only grow, and into the last values of what is not a total.
//!
//! Deliberately absent: reading the maps (`probes`), names and label values (`export`), and for
//! now the phases and bursts of the eviction cycle.

mod accumulator;
#[cfg(test)]
pub mod fixture;
mod members;
mod mode;
mod overhead;
mod snapshot;
mod state;
mod totals;

pub use accumulator::Accumulator;
pub use members::Members;
pub use mode::ProbeMode;
pub use overhead::{HitCosts, Overhead, SingleStepped};
pub use snapshot::Snapshot;
pub use state::ServerState;
pub use totals::{CallTotals, HistogramTotals};
