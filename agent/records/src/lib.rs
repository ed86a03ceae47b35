//! Records: files that keep what was measured in a burst and around it, what they mean, and how two of them compare.
//!
//! Begin with [`Record`], which is what a file holds. [`Store`] is the directory of them, [`Labelled`] what is remembered of a
//! live server, and [`Keeper`] the thread that writes, so that no server's thread waits for a disk. [`explain`] says what
//! happened in a record and why, [`compare`] what changed from one to another, and [`profile`] is where a main thread spent its
//! time.
//!
//! No key name and no value of a client is ever in a record: nothing of the kind is ever read. Deliberately absent: making
//! records (the agent's `watch`), and pages of them (`evictscope-web`).

#![forbid(unsafe_code)]

pub mod compare;
pub mod explain;
#[doc(hidden)]
pub mod fixture;
mod folder;
mod keeper;
mod labels;
mod packed;
pub mod profile;
mod record;
mod store;
pub mod text;

pub use keeper::{Keeper, KeeperCounts, Tell, unix_us};
pub use labels::Labelled;
pub use packed::Unreadable;
pub use record::{Configuration, NoProfile, Occasion, Record, RecordId, RecordedServer};
pub use store::{Limits, Listed, Store, StoreError, Summary, read_record};
