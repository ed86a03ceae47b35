//! The directory that records are in.

use std::path::{Path, PathBuf};

use super::{Occasion, Record, RecordId};

/// How much may be kept. The oldest go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most records.
    pub records: usize,
    /// Most bytes of records, on the disk.
    pub bytes: u64,
}

/// Records, one file each.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
    limits: Limits,
}

/// A file of the store.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What it holds, or why that cannot be said: it is damaged, or no record.
    pub summary: Result<Summary, String>,
}

/// What a list says of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Its name.
    pub id: RecordId,
    /// Why it was made.
    pub occasion: Occasion,
    /// The server's name in metrics.
    pub server: String,
    /// When what it is about began, since 1970, microseconds.
    pub began_us: u64,
    /// When that ended.
    pub ended_us: u64,
    /// The burst's kind, where it is about one.
    pub kind: Option<String>,
}

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// TODO(store): replace with the real ones.
    #[error("{0}")]
    Todo(String),
}

impl Store {
    /// Opens the directory, which is made where it does not exist, and removes what an agent left that was killed while it
    /// wrote.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, StoreError> {
        Ok(Self {
            directory: directory.to_owned(),
            limits,
        })
    }

    /// Writes a record, whole or not at all, and removes the oldest that are too many.
    pub fn write(&self, _record: &Record) -> Result<PathBuf, StoreError> {
        todo!("{:?} {:?}", self.directory, self.limits)
    }

    /// Lists all files, the newest first; damaged and foreign ones too.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        todo!()
    }

    /// Reads a record.
    pub fn read(&self, _id: &RecordId) -> Result<Record, StoreError> {
        todo!()
    }
}

/// Reads a record from a file, wherever it is.
pub fn read_record(_file: &Path) -> Result<Record, StoreError> {
    todo!()
}
