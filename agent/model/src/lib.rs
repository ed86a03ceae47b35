//! The words that all crates of the agent share: what can be read of a server, where it is, what is exported of it,
//! which alerts need that, what a burst is, and what the agent's API answers. It finds, reads and shows nothing.

#![forbid(unsafe_code)]

mod address;
mod alerts;
pub mod answers;
mod burst;
pub mod catalogue;
mod members;
mod time;

pub use self::address::{FileAddress, FileOffset, ProcessAddress};
pub use self::alerts::{ALERTS, Alert, threshold};
pub use self::burst::{Burst, BurstKind};
pub use self::catalogue::{Lost, MetricEntry};
pub use self::members::{Content, Member, MemberLine, MemberMetric, Printed};
pub use self::time::UnixTime;
