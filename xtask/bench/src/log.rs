//! The file with one JSON object for each measurement, after one that says what is measured.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::workspace;
use serde_json::Value;

/// A file of measurements.
pub struct Log {
    file: File,
    path: PathBuf,
}

impl Log {
    /// Creates the file of this name in cargo's target directory.
    pub fn create(name: &str, heading: &Value) -> Result<Self> {
        let directory = workspace::target_directory()?;
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let path = directory.join(name);
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut log = Self { file, path };
        log.line(heading)?;
        Ok(log)
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one object.
    pub fn line(&mut self, value: &Value) -> Result<()> {
        writeln!(self.file, "{value}")
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
