//! A server's executable under a name of its own, which only the agents of this process look for.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::Result;
use tempfile::TempDir;

use crate::{
    program,
    redis::{self, Redis},
    root,
};

/// The option by which an agent watches servers of these names.
pub(crate) const OPTION: &str = "--process-match";

/// Numbers the copies of this process.
static MADE: AtomicU32 = AtomicU32::new(0);

/// How the names of this process's copies begin.
pub(crate) fn prefix() -> String {
    format!("own-{}-", std::process::id())
}

/// Returns the option by which an agent watches all servers of this process, and no others.
pub fn all() -> String {
    format!("{OPTION}=^{}", prefix())
}

/// A copy of a server's executable, which is deleted when this is dropped.
pub struct OwnBuild {
    directory: TempDir,
    name: String,
    /// The root directory in which its servers run, if that is not this machine's.
    root: Option<PathBuf>,
}

impl OwnBuild {
    /// Copies the `redis-server` on `PATH`.
    pub fn of_redis() -> Result<Self> {
        Self::of(&redis::executable()?)
    }

    /// Copies an executable.
    pub fn of(executable: &Path) -> Result<Self> {
        Self::in_root(executable, None)
    }

    /// Copies an executable into another root directory, if one is given. Its servers run there, which needs root.
    pub fn in_root(executable: &Path, root: Option<&Path>) -> Result<Self> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let own = Self {
            directory: match root {
                Some(root) => tempfile::tempdir_in(root)?,
                None => tempfile::tempdir()?,
            },
            name: format!("{}{number}", prefix()),
            root: root.map(Path::to_owned),
        };
        own.replace(executable)?;
        Ok(own)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    /// Returns the option by which an agent watches the servers of this file, and of files with its name and an
    /// extension.
    pub fn only(&self) -> String {
        format!("{OPTION}=^{}(\\.|$)", self.name)
    }

    /// Puts a copy of another executable in its place, as a package manager does: running programs keep the old file.
    pub fn replace(&self, executable: &Path) -> Result<()> {
        let new = self.directory.path().join("new");
        program::copy(executable, &new)?;
        Ok(fs::rename(new, self.path())?)
    }

    /// Deletes the file. Running programs keep it.
    pub fn delete(&self) -> Result<()> {
        Ok(fs::remove_file(self.path())?)
    }

    /// Starts a server, with these options.
    pub fn start(&self, options: &[&str]) -> Result<Redis> {
        let Some(root) = &self.root else {
            return Redis::start_program(Command::new(self.path()), options);
        };
        let inside = Path::new("/").join(self.directory.path().strip_prefix(root)?);
        let program = root::enter(root, &inside.join(&self.name).to_string_lossy());
        let directory = inside.to_string_lossy();
        // A server in another root starts in `/`.
        Redis::start_program(program, &[&["--dir", &*directory], options].concat())
    }
}
