//! Records: files that keep what was measured in a burst and around it, and the last day of each server.
//!
//! [`Record`] is what a file holds, [`Store`] the directory of them, [`Labelled`] what is remembered of a live server. [`Keeper`] is the thread that writes, so that no
//! server's thread waits for a disk.
//!
//! Deliberately absent: what a record means (`explain`), and how it looks (`export`). No key name and no value of a client
//! is ever in a record: nothing of the kind is ever read.

#[cfg(test)]
pub mod fixture;
mod folder;
mod history;
mod keeper;
mod labels;
mod packed;
mod record;
mod store;

pub use keeper::{Keeper, KeeperCounts, Tell, unix_us};
pub use labels::Labelled;
pub use packed::Unreadable;
pub use record::{Configuration, NoProfile, Occasion, Record, RecordId, RecordedServer};
pub use store::{Limits, Listed, Store, StoreError, Summary, read_record};
