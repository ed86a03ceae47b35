//! Turns snapshots into the state of each server. Pure: no clock of its own, no I/O.
//!
//! A [`Snapshot`] holds the values that were read of one server at one moment. [`ServerState`] adds
//! snapshots up to totals that only grow, and keeps the last of the other values. From these follow
//! the cost of the probes ([`Overhead`]), the probe mode to be in ([`AutoMode`]), and whether the plan
//! fits the server at all ([`Withdrawal`]). [`Cycle`] makes phases and bursts of the same snapshots.
//!
//! Deliberately absent: reading the maps (`probes`), and names of metrics (`export`).

mod baseline;
mod budget;
mod burst_totals;
mod bursts;
mod counters;
mod cycle;
#[cfg(test)]
pub mod fixture;
mod mode;
mod observation;
mod open_burst;
mod overhead;
mod phases;
mod snapshot;
mod state;
mod timeline;
mod totals;
mod withdrawal;

pub use budget::{AutoMode, OverheadBudget};
pub use burst_totals::BurstTotals;
pub use bursts::{Burst, BurstKind};
pub use cycle::Cycle;
pub use mode::ProbeMode;
#[cfg(test)]
pub use observation::EvictionTimes;
pub use observation::Observation;
pub use overhead::{HitCosts, IntervalCost, Overhead, ProbedSites};
pub use phases::{Phase, Phases};
pub use snapshot::{Members, Snapshot};
pub use state::ServerState;
pub use timeline::{TimeBin, Timeline};
pub use totals::{Accumulator, CallTotals, HistogramTotals};
pub use withdrawal::{BrokenInvariant, Withdrawal};
