//! From what is read of a server to what is known of it: phases, bursts, stalls, CPU time, and what the probes cost.
//!
//! Begin with [`Snapshot`]: the values that were read of one server at one moment. [`ServerState`] adds snapshots up to
//! totals that only grow, the time in which the server was stalled among them, and keeps the last of the other values. From
//! these follow the cost of the probes ([`Overhead`]), the probe mode to be in ([`AutoMode`]), and whether the plan
//! fits the server at all ([`Withdrawal`]). [`Cycle`] makes phases and bursts of the same snapshots.
//!
//! It does no I/O and reads no clock: `clippy.toml` forbids both, except in tests. Deliberately absent: reading the maps
//! (`evictscope-probes`), and names of metrics (`evictscope-web`).

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests read recorded readings, and say what they saw"
    )
)]

mod activity;
mod budget;
mod burst_totals;
mod bursts;
mod calm;
mod candidate;
mod correction;
mod cycle;
mod expire_audit;
mod expired_share;
mod invariant;
mod latencies;
mod longest;
mod look;
mod look_pace;
mod main_thread;
mod margins;
mod members;
mod mode;
mod moment;
mod moments;
mod observation;
mod open_burst;
mod overhead;
mod phases;
mod reading;
mod recent_maximum;
mod reclaim;
mod recorded;
mod refused;
mod rest;
mod sampling;
mod seconds;
mod slow_calls;
mod snapshot;
mod stall_times;
mod stalls;
mod state;
mod timeline;
mod totals;
mod units;
mod unreset;
mod waits;
mod withdrawal;

pub use budget::{AutoMode, OverheadBudget};
pub use burst_totals::BurstTotals;
pub use bursts::{Burst, BurstKind};
pub use calm::Calm;
pub use candidate::{Candidate, POOL_BYTES};
pub use cycle::Cycle;
pub use invariant::{BrokenInvariant, Withdrawal};
pub use latencies::{Latencies, LatencySecond};
pub use longest::LongestCalls;
pub use look::{Owed, SocketLook, Unread};
pub use look_pace::LookPace;
pub use main_thread::MainThread;
pub use margins::{Margins, MemoryGrowth};
pub use members::{ClientBuffers, Members};
pub use mode::ProbeMode;
pub use moment::{Moment, found_share};
pub use observation::{EvictionTimes, Observation};
pub use overhead::{Cost, HitCosts, Overhead, ProbedSites};
pub use phases::{Phase, Phases};
pub use recorded::RecordedReading;
pub use rest::{Rest, ThreadReading};
pub use sampling::Sampling;
pub use slow_calls::{CallResult, SlowCall, SlowCalls};
pub use snapshot::{Counted, Observed, Snapshot, ThreadTimes};
pub use stall_times::{StallTime, stall_times};
pub use stalls::{STALL_THRESHOLD, StallCause};
pub use state::ServerState;
pub use timeline::{BIN_NS, TimeBin, Timeline};
pub use totals::{HistogramTotals, HistogramView};
pub use units::{microseconds, nanoseconds};
pub use waits::{OVER, Waits};
