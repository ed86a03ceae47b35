//! Turns snapshots of a server into phases, bursts, stalls, CPU time and the cost of the probes.
//!
//! | folder | what is in it |
//! |---|---|
//! | `snapshots` | what is read from one server at one moment: start with [`Snapshot`] |
//! | `clients` | what clients feel: how long requests wait, and what the main thread did meanwhile |
//! | `state` | [`ServerState`]: snapshots added up into totals that only grow, and whether they agree with the plan ([`Withdrawal`]) |
//! | `cycle` | [`Cycle`]: phases and bursts, and how far a server is from them |
//! | `cost` | what the probes cost ([`Overhead`]), and which are placed as a result ([`AutoMode`]) |
//! | `timeline` | [`Timeline`]: the last ten minutes |
//!
//! This crate does no I/O and reads no clock: `clippy.toml` forbids both, except in tests. Deliberately absent: reading
//! the maps (`evictscope-probes`), and names of metrics (`evictscope-web`).

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "only this workspace uses it: a name and a type say what most of these are")]
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
mod commands;
mod cost;
mod cycle;
mod recorded;
mod snapshots;
mod state;
mod timeline;
mod totals;

use std::time::Duration;

pub use clients::pace::{Calm, LookPace};
pub use clients::peers::{Peers, WorstPeers};
pub use clients::rest::{Rest, ThreadReading};
pub use clients::stalls::{STALL_THRESHOLD, StallCause};
pub use clients::waits::{OVER, Waits};
pub use commands::{CommandCounts, CommandLog, CommandShare, CommandSpan, calls_others, commands_in};
pub use cost::auto_mode::{AutoMode, ProbeSampling};
pub use cost::hit_costs::{HitCosts, ProbeMode, ProbedSites};
pub use cost::overhead::{Cost, Overhead, OverheadBudget};
pub use cycle::Cycle;
pub use cycle::burst_totals::BurstTotals;
pub use cycle::margins::{CostOrigin, EvictionLoad, Margins, MemoryGrowth};
pub use cycle::phases::{Phase, Phases};
pub use evictscope_model::{Burst, BurstKind};
pub use recorded::RecordedReading;
pub use snapshots::candidate::{Candidate, POOL_BYTES};
pub use snapshots::members::{ClientBuffers, Exemption, KeyClock, MemberValues, OutputLimits};
pub use snapshots::moment::{Moment, StallTime, found_share, stall_times};
pub use snapshots::parts::{MemoryPart, MemoryParts};
pub use snapshots::{
    ActivePeer, Answered, Counted, EvictionTimes, ExpiredSample, GaveUp, Observed, Owed, PeerAddress, SeenPeers,
    Snapshot, SocketLook, ThreadTimes, Unread, Unrun,
};
pub use state::invariant::{BrokenInvariant, Withdrawal};
pub use state::latencies::{Latencies, LatencySecond};
pub use state::main_thread::MainThreadTime;
pub use state::slow_calls::{CallResult, LongestCalls, SlowCall, SlowCalls};
pub use state::{ServerState, TimedCalls};
pub use timeline::{BIN_NS, RECORDED_BEFORE, TimeBin, Timeline, last_calm};
pub use totals::{HistogramTotals, HistogramView};

/// A time in whole nanoseconds, 584 years at most.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A time in whole microseconds.
pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
