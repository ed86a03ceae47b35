//! The directory of records and the labels of live servers.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::folder::{Folder, FolderEntry, open_file, open_or_create};
use crate::labels::Labels;
use crate::packed::{self, Unreadable};
use crate::{Occasion, Record, RecordId};

/// How the names of files end.
pub(super) const ENDING: &str = ".json.gz";
/// The most files that a list includes: twice as many as are kept, for what somebody has put there.
const MOST_LISTED: usize = 2 * StoreLimits::RECORDS;

/// How much may be kept. The oldest go first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreLimits {
    /// The most records.
    pub records: usize,
    /// The most bytes of records, on the disk.
    pub bytes: u64,
}

impl StoreLimits {
    /// The most records that an agent keeps.
    pub const RECORDS: usize = 1_000;
}

/// Records, one file for each, and the labels of live servers.
#[derive(Debug)]
pub struct Store {
    records: Folder,
    labels: Labels,
    limits: StoreLimits,
    /// Held while the agent may write: two agents that write into one directory would each remove what the other needs.
    _lock: Option<File>,
}

/// A file of the store.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Where it is.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// What it holds, or why that is unknown: it is damaged, or not a record.
    pub summary: Result<Summary, String>,
}

/// What a list says about a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "a record has the same")]
pub struct Summary {
    pub id: RecordId,
    pub occasion: Occasion,
    /// The server's name in metrics.
    pub server: String,
    pub began_us: u64,
    pub ended_us: u64,
    /// The burst's kind, or how the server ended, if it is about one of these.
    pub kind: Option<String>,
}

impl Summary {
    /// Returns what a list says about this record.
    pub fn of(record: &Record) -> Self {
        let kind = record.burst.as_ref().map(|burst| burst.kind().0.to_string());
        let how = record.ending.map(|ending| ending.how().to_owned());
        Self {
            id: record.id.clone(),
            occasion: record.occasion,
            server: record.server.label.clone(),
            began_us: record.began_us,
            ended_us: record.ended_us,
            kind: how.or(kind),
        }
    }
}

/// Why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum StoreError {
    #[error(
        "cannot write into {path}: {1}; --state-dir names another directory, and --keep-records 0 keeps nothing; in a container, add --volume evictscope:{path} (podman, Docker) or a volume mounted there (Kubernetes)",
        path = .0.display()
    )]
    Directory(PathBuf, io::Error),
    #[error("another agent keeps its records in {}: --state-dir names another directory", .0.display())]
    InUse(PathBuf),
    #[error("cannot {0}: {1}")]
    File(String, io::Error),
    /// A record with this name and this many bytes is larger than the last number, the limit for all.
    #[error("{0} has {1} bytes, and the limit for all records is {2}: raise --keep-records")]
    DoesNotFit(String, u64, u64),
    #[error("there is no record {0}; `evictscope report --list` lists them")]
    NoSuchRecord(PathBuf),
    #[error("cannot read the record {}: {error}", file.display())]
    Read { file: PathBuf, error: Unreadable },
}

impl Store {
    /// Opens the directory for writing. Creates it if it does not exist, and removes what a killed agent left
    /// unfinished. Fails if the directory cannot be written, its files are not what they should be, or another agent
    /// writes there.
    pub fn open(directory: &Path, limits: StoreLimits) -> Result<Self, StoreError> {
        let failed = |error| StoreError::Directory(directory.to_owned(), error);
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o750);
        builder.create(directory).map_err(failed)?;
        let lock = open_or_create(&directory.join("lock")).map_err(failed)?;
        lock.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => StoreError::InUse(directory.to_owned()),
            std::fs::TryLockError::Error(error) => failed(error),
        })?;
        let store = Self { limits, _lock: Some(lock), ..Self::at(directory) };
        store.records.prepare().map_err(failed)?;
        if directory.join("records").is_symlink() {
            return Err(failed(io::Error::other("`records` in it is a symbolic link")));
        }
        store.labels.prepare().map_err(failed)?;
        Ok(store)
    }

    /// Returns the directory for reading, and changes nothing. It need not exist.
    pub fn at(directory: &Path) -> Self {
        Self {
            records: Folder::at(directory.join("records")),
            labels: Labels::at(directory),
            limits: StoreLimits::default(),
            _lock: None,
        }
    }

    pub(super) fn labels(&self) -> &Labels {
        &self.labels
    }

    /// Writes a record, whole or not at all, after removing the oldest if they are too many. Fails if the disk is full,
    /// or the record is larger than all that may be kept.
    pub fn write(&self, record: &Record) -> Result<PathBuf, StoreError> {
        let name = file_name(&record.id);
        let cannot = |error| self.cannot("write", &name, error);
        let packed = packed::pack(&Summary::of(record), record).map_err(cannot)?;
        self.make_room(&name, packed.len() as u64)?;
        self.records.write(&name, &packed).map_err(cannot)
    }

    fn cannot(&self, what: &str, name: impl AsRef<Path>, error: io::Error) -> StoreError {
        let path = self.records.path(name);
        StoreError::File(format!("{what} {}", path.display()), error)
    }

    /// Removes the oldest records, so that one more, of this many bytes, is within the limits.
    fn make_room(&self, name: &str, bytes: u64) -> Result<(), StoreError> {
        let limit = self.limits.bytes;
        if bytes > limit || self.limits.records == 0 {
            return Err(StoreError::DoesNotFit(name.to_owned(), bytes, limit));
        }
        let mut files = self.files()?;
        // A name begins with a time.
        files.sort_by(|one, other| other.name.cmp(&one.name));
        let mut kept = total(&files);
        while (files.len() >= self.limits.records || kept + bytes > limit)
            && let Some(oldest) = files.pop()
        {
            self.records.remove(&oldest.name).map_err(|error| {
                let file = self.records.path(&oldest.name);
                StoreError::File(format!("remove {}, to make room", file.display()), error)
            })?;
            kept -= oldest.bytes;
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<FolderEntry>, StoreError> {
        self.records.entries().map_err(|error| self.cannot("read", "", error))
    }

    /// Returns our own files: foreign ones are neither counted nor removed.
    fn files(&self) -> Result<Vec<FolderEntry>, StoreError> {
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.is_file && id_of(&entry.name).is_some());
        Ok(entries)
    }

    /// Returns how many records are kept, and how many bytes they have. Fails if the directory cannot be read.
    pub fn kept(&self) -> Result<(u64, u64), StoreError> {
        let records = self.files()?;
        Ok((records.len() as u64, total(&records)))
    }

    /// Lists all files: the newest record first, and what is not a record at the end. Reads only the beginning of each,
    /// so damage further on is found only when a record is read. Fails if the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut entries = self.entries()?;
        // What is being written is not a file yet.
        entries.retain(|entry| !entry.name.as_encoded_bytes().starts_with(b"."));
        entries.sort_by_cached_key(|entry| {
            let is_record = entry.is_file && id_of(&entry.name).is_some();
            std::cmp::Reverse((is_record, entry.name.clone()))
        });
        entries.truncate(MOST_LISTED);
        let listed = entries.into_iter().map(|entry| Listed {
            path: self.records.path(&entry.name),
            bytes: entry.bytes,
            summary: self.summary(&entry),
        });
        Ok(listed.collect())
    }

    fn summary(&self, entry: &FolderEntry) -> Result<Summary, String> {
        let Some(id) = id_of(&entry.name).filter(|_| entry.is_file) else {
            return Err(Unreadable::Foreign.to_string());
        };
        let (file, metadata) = self.records.open(&entry.name).map_err(|e| e.to_string())?;
        let summary: Summary = packed::read_head(file, metadata.len()).map_err(|error| error.to_string())?;
        if summary.id == id { Ok(summary) } else { Err(renamed(&summary.id)) }
    }

    /// Reads a record. Fails if there is none with this name, or it is damaged.
    pub fn read(&self, id: &RecordId) -> Result<Record, StoreError> {
        let file = self.records.path(file_name(id));
        let record = read(&file, OFlags::NOFOLLOW)?;
        if record.id == *id {
            Ok(record)
        } else {
            Err(StoreError::Read { file, error: Unreadable::Other(renamed(&record.id)) })
        }
    }
}

fn renamed(id: &RecordId) -> String {
    format!("it holds the record {id}: it was renamed")
}

fn total(files: &[FolderEntry]) -> u64 {
    files.iter().map(|file| file.bytes).sum()
}

fn file_name(id: &RecordId) -> String {
    format!("{id}{ENDING}")
}

/// Returns the name of the record that a file of this name holds; `None` if it is not one of our names.
fn id_of(name: &OsStr) -> Option<RecordId> {
    RecordId::try_from(name.to_str()?.strip_suffix(ENDING)?.to_owned()).ok().filter(RecordId::has_time)
}

/// Reads a record from a file, wherever it is. Fails if there is no such file, or it is damaged or not a record.
pub fn read_record(file: &Path) -> Result<Record, StoreError> {
    read(file, OFlags::empty())
}

fn read(path: &Path, flags: OFlags) -> Result<Record, StoreError> {
    let file = path.to_owned();
    let cannot = |error| StoreError::Read { file: file.clone(), error };
    let (opened, metadata) = open_file(path, flags).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => StoreError::NoSuchRecord(file.clone()),
        _ => cannot(error.into()),
    })?;
    let (summary, record): (Summary, Record) = packed::read_all(opened, metadata.len()).map_err(cannot)?;
    let why = match record.is_drawable() {
        _ if summary.id != record.id => format!("it holds {} and {}", summary.id, record.id),
        false => "no profile has as many frames".to_owned(),
        true => return Ok(record),
    };
    Err(cannot(Unreadable::Damaged(why)))
}

#[cfg(test)]
mod killed;
#[cfg(test)]
pub(crate) mod tests;
