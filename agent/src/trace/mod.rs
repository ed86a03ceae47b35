//! `evictscope trace`: the latency of one function of a server, during an investigation.
//!
//! [`subject`] finds the process and the function. The loop in [`session`] turns the probes ([`probing`]) on and off as
//! [`pace`] says, and prints what [`report`] makes of the counts.
//!
//! Deliberately absent: anything that is exported. This is a question, not a metric.

mod ending;
mod pace;
mod probing;
mod report;
mod session;
mod subject;

pub use ending::Ending;
pub use session::{Question, answer};
