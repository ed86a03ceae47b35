//! The words that all crates of the agent share: what can be read of a server, where it is, what is exported of it, and
//! which alerts need that. It finds, reads and shows nothing.

#![forbid(unsafe_code)]

mod address;
mod alerts;
pub mod catalogue;
mod members;

pub use self::address::{FileAddress, FileOffset, ProcessAddress};
pub use self::alerts::{ALERTS, Alert, threshold};
pub use self::catalogue::{Lost, MetricEntry};
pub use self::members::{Content, Member, MemberMetric, Printed};
