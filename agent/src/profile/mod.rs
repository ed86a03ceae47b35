//! Where the main thread of a server spends its CPU time.
//!
//! Deliberately absent: taking the samples (`probes`).

mod format;
mod profiler;
mod taken;

pub use format::folded;
pub use profiler::{Profiler, Profiling};
pub use taken::{Activity, Profile, Stack};
