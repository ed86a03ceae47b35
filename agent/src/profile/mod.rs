//! Where the main thread of a server spends its CPU time.
//!
//! [`Profiler`] has the kernel copy registers and stack at each 49th of a second of CPU time. Its thread unwinds the
//! copies and drops them at once: only names of functions are kept.
//!
//! Deliberately absent: taking the samples (`probes`), and how a stack is unwound by the tables of one file
//! (`evictscope-plan`).

mod collected;
mod mapped_files;
mod profiler;
mod refused;
mod unwound;
mod worker;

pub use mapped_files::Subject;
pub use profiler::{Profiler, Profiling, check};
