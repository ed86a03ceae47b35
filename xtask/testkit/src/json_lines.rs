//! Files of measurements, with one JSON object a line.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::workspace;

/// A file of measurements.
pub struct JsonLines {
    file: File,
    path: PathBuf,
}

impl JsonLines {
    /// Creates the file of this name in cargo's target directory.
    pub fn create(name: impl AsRef<Path>) -> Result<Self> {
        let path = workspace::target_directory()?.join(name);
        let cannot = || format!("cannot write {}", path.display());
        fs::create_dir_all(path.parent().with_context(cannot)?).with_context(cannot)?;
        let file = File::create(&path).with_context(cannot)?;
        Ok(Self { file, path })
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds one object.
    pub fn add(&mut self, object: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(object)?;
        writeln!(self.file, "{line}")
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}
