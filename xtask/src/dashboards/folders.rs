//! Where the dashboards are, and what is made of them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use evictscope_testkit::workspace;

pub fn sources() -> PathBuf {
    workspace::root().join("dashboards")
}

/// Returns the dashboards in a folder, by name.
pub fn dashboards(folder: &Path) -> Result<Vec<PathBuf>> {
    workspace::files_ending(folder, "json")
}

/// Returns the folder below `target` for what is built here, and makes it.
pub fn built() -> Result<PathBuf> {
    let folder = workspace::target_directory()?.join("dashboards");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

pub fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
