//! Finds a kept record by its name or file.

use std::path::{Path, PathBuf};

use evictscope_records::{Record, RecordId, Store, StoreError, read_record};

use super::state_dir;

/// Where records are.
#[derive(clap::Args)]
pub struct StateDir {
    /// The directory that the agent keeps its records in [default: $STATE_DIRECTORY, else /var/lib/evictscope]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateDir {
    /// Returns the records in it.
    pub fn store(&self) -> Store {
        match &self.state_dir {
            Some(directory) => Store::at(directory),
            None => Store::at(&state_dir::usual()),
        }
    }

    /// Returns the state directory at this path.
    #[cfg(test)]
    pub fn of(directory: &Path) -> Self {
        Self { state_dir: Some(directory.to_owned()) }
    }

    /// Reads the record with this name, or in this file.
    pub fn record(&self, named: &str) -> Result<Record, StoreError> {
        match RecordId::try_from(named.to_owned()) {
            Ok(id) if !Path::new(named).exists() => self.store().read(&id),
            _ => read_record(Path::new(named)),
        }
    }
}
