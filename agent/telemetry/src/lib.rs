//! Turns snapshots of a server into phases, bursts, stalls, CPU time and the cost of the probes.
//!
//! | folder | what is in it |
//! |---|---|
//! | `snapshots` | what is read from one server at one moment: start with [`Snapshot`] |
//! | `clients` | what clients feel: how long requests wait, and what the main thread did meanwhile |
//! | `state` | [`ServerState`]: snapshots added up into totals that only grow, and whether they agree with the plan ([`Withdrawal`]) |
//! | `cycle` | [`Cycle`]: phases and bursts, and how far a server is from them |
//! | `cost` | what the probes cost ([`Overhead`]), and which are placed as a result ([`AutoMode`]) |
//! | `history` | [`Timeline`]: the last ten minutes |
//!
//! This crate does no I/O and reads no clock: `clippy.toml` forbids both, except in tests. Deliberately absent: reading
//! the maps (`evictscope-probes`), and names of metrics (`evictscope-web`).

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

mod clients;
mod cost;
mod cycle;
mod history;
mod recent_maximum;
mod recorded;
mod snapshots;
mod state;
mod units;
mod unreset;

pub use clients::calm::Calm;
pub use clients::look_pace::LookPace;
pub use clients::rest::{Rest, ThreadReading};
pub use clients::stalls::{STALL_THRESHOLD, StallCause};
pub use clients::waits::{OVER, Waits};
pub use cost::auto_mode::AutoMode;
pub use cost::budget::OverheadBudget;
pub use cost::hit_costs::{HitCosts, ProbedSites};
pub use cost::mode::ProbeMode;
pub use cost::overhead::{Cost, Overhead};
pub use cost::sampling::Sampling;
pub use cycle::burst_totals::BurstTotals;
pub use cycle::bursts::{Burst, BurstKind};
pub use cycle::margins::{EvictionLoad, Margins, Measured, MemoryGrowth};
pub use cycle::phases::{Phase, Phases};
pub use cycle::state_machine::Cycle;
pub use history::timeline::{BIN_NS, TimeBin, Timeline};
pub use recorded::RecordedReading;
pub use snapshots::candidate::{Candidate, POOL_BYTES};
pub use snapshots::expired::ExpiredSample;
pub use snapshots::look::{Answered, GaveUp, Owed, SocketLook, Unread};
pub use snapshots::members::{ClientBuffers, KeyClock, Members};
pub use snapshots::moment::{Moment, StallTime, found_share, stall_times};
pub use snapshots::snapshot::{Counted, EvictionTimes, Observed, Snapshot, ThreadTimes, Unrun};
pub use state::invariant::{BrokenInvariant, Withdrawal};
pub use state::latencies::{Latencies, LatencySecond};
pub use state::longest::LongestCalls;
pub use state::main_thread::MainThread;
pub use state::server::{ServerState, TimedCalls};
pub use state::slow_calls::{CallResult, SlowCall, SlowCalls};
pub use state::totals::{HistogramTotals, HistogramView};
pub use units::{microseconds, nanoseconds};
