//! A folder of files that are each written once, whole or not at all.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use evictscope_host::open_regular;
use rustix::fs::OFlags;

/// The mode of a folder: only the agent's user and group have business there. Under the unit, the umask leaves only the
/// user.
const MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;
/// The most names to look at in a folder. Ours have far fewer, so a folder with more holds something else.
const MOST_NAMES: usize = 100_000;
/// The beginning of the name of an unfinished file.
const UNFINISHED: &str = ".unfinished-";

#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FolderEntry {
    pub(super) name: OsString,
    pub(super) bytes: u64,
    /// Whether it is a file, and not a link, a pipe or a folder.
    pub(super) is_file: bool,
}

impl Folder {
    /// Returns the folder at this path, which need not exist.
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Creates the folder if it does not exist, and removes unfinished files.
    pub(super) fn prepare(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(MODE).create(&self.0)?;
        for entry in self.entries()? {
            if entry.is_file && entry.name.as_bytes().starts_with(UNFINISHED.as_bytes()) {
                std::fs::remove_file(self.0.join(&entry.name))?;
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Lists what is in the folder, in no order; nothing if there is no folder.
    pub(super) fn entries(&self) -> io::Result<Vec<FolderEntry>> {
        let listed = match std::fs::read_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut entries = Vec::new();
        for entry in listed.take(MOST_NAMES) {
            let entry = entry?;
            // For a link, of the link itself. A file may have been removed by now.
            let Ok(metadata) = entry.metadata() else { continue };
            entries.push(FolderEntry { name: entry.file_name(), bytes: metadata.len(), is_file: metadata.is_file() });
        }
        Ok(entries)
    }

    /// Writes a file. When this returns, it is on the disk under its name. If it fails, nothing is, or what was there
    /// before.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        let unfinished = self.0.join(format!("{UNFINISHED}{name}"));
        let path = self.0.join(name);
        let renamed = write_whole(&unfinished, content).and_then(|()| std::fs::rename(&unfinished, &path));
        if renamed.is_err() {
            // It may not be there.
            let _ = std::fs::remove_file(&unfinished);
        }
        renamed?;
        let synced = File::open(&self.0).and_then(|folder| folder.sync_all());
        if synced.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        synced.map(|()| path)
    }

    /// Removes a file, if it exists.
    pub(super) fn remove(&self, name: impl AsRef<Path>) -> io::Result<()> {
        match std::fs::remove_file(self.0.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Opens a file with this name: no link, and nothing that could block.
    pub(super) fn open(&self, name: impl AsRef<Path>) -> io::Result<(File, Metadata)> {
        open_file(&self.0.join(name), OFlags::NOFOLLOW)
    }
}

pub(super) fn open_file(path: &Path, flags: OFlags) -> io::Result<(File, Metadata)> {
    let file = open_regular(path, flags)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Opens a regular file for writing without truncating it, or creates an empty one. Follows no link, and never waits
/// for the other end of a pipe.
pub(super) fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(FILE_MODE);
    let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a file")) }
}

fn write_whole(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = open_or_create(path)?;
    file.set_len(0)?;
    file.write_all(content)?;
    file.sync_all()
}
