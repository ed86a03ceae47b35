//! Where the matrix keeps what it downloads and makes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::workspace;

pub fn directory() -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join("matrix"))
}

/// Makes a directory, and removes what was in it.
pub fn make_empty(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}
