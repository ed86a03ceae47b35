//! A directory for the files of the children.

use std::fs::{DirBuilder, remove_dir_all};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that nobody else may read, which is removed when this is dropped.
pub struct Directory(PathBuf);

impl Directory {
    /// Makes one where temporary files belong.
    pub fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("evictscope-selftest-{}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| {
            format!("cannot make {}: TMPDIR names another place", path.display())
        })?;
        Ok(Self(path))
    }

    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing of value is left behind where it fails.
        let _ = remove_dir_all(&self.0);
    }
}
