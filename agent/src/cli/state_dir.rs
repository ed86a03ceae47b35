//! Where records are, for the subcommands that read them.

use std::path::{Path, PathBuf};

use evictscope_records::{Record, RecordId, Store, StoreError, read_record};

#[derive(clap::Args)]
pub struct StateDir {
    /// The directory that the agent keeps its records in [default: $STATE_DIRECTORY, else /var/lib/evictscope]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl StateDir {
    pub fn store(&self) -> Store {
        Store::at(&self.state_dir.clone().unwrap_or_else(usual_state_dir))
    }

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

/// Returns the directory that systemd made for this service (`StateDirectory=`), or else the usual one.
pub fn usual_state_dir() -> PathBuf {
    let given = std::env::var_os("STATE_DIRECTORY").filter(|given| !given.is_empty());
    given.unwrap_or_else(|| "/var/lib/evictscope".into()).into()
}
