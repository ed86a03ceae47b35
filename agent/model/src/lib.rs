//! The words that all crates of the agent share: what can be read of a server, where it is, what is exported of it,
//! which alerts need that, and what the agent's API answers. It finds, reads and shows nothing.

#![forbid(unsafe_code)]

mod address;
mod alerts;
pub mod answers;
pub mod catalogue;
mod members;
mod time;

pub use self::address::{FileAddress, FileOffset, ProcessAddress};
pub use self::alerts::{ALERTS, Alert, threshold};
pub use self::catalogue::{Lost, MetricEntry};
pub use self::members::{Content, Member, MemberMetric, Printed};
pub use self::time::UnixTime;
