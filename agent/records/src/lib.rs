//! Records: files that keep what was measured in a burst and around it, what they mean, and how two of them compare.
//!
//! Start with [`Record`], which is what a file holds. [`Store`] is the directory of records, [`Labelled`] is what is
//! remembered about a live server, and [`Keeper`] is the thread that writes, so that no server's thread waits for a
//! disk. [`explain`] says what happened in a record and why, [`evidence`] where time and memory went and who
//! waited, [`compare`] what changed from one to another, and [`profile`] is where a main thread spent its time.
//!
//! A record never contains a key name or a client's value: `watch` reads neither. It has addresses of clients, unless
//! `peers` is off. Deliberately absent: making records
//! (the agent's `watch`), and pages of them (`evictscope-web`).

#![forbid(unsafe_code)]

pub mod compare;
pub mod evidence;
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

pub use keeper::{Causes, Keeper, KeeperCounts, Tell, unix_us};
pub use labels::Labelled;
pub use packed::Unreadable;
pub use record::{Configuration, Ending, NoProfile, Occasion, Record, RecordId, RecordedPeers, RecordedServer};
pub use store::{Listed, Store, StoreError, StoreLimits, Summary, read_record};
