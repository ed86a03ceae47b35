//! The words that all crates of the agent share: what can be known of a server, and where it is. Types only: it finds,
//! reads and shows nothing.

#![forbid(unsafe_code)]

mod address;
mod members;

pub use self::address::{FileAddress, FileOffset, ProcessAddress};
pub use self::members::{Content, Member, MemberMetric, Printed};
