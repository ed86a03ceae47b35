//! The file that a process runs, and the one beneath it on an overlay (Documentation/filesystems/overlayfs.rst).
//!
//! Whatever changes a file on an overlay, if only its mode or its times, copies it to the upper layer first. A process
//! that executes it already goes on with the lower file, but `/proc/PID/exe` leads to the copy, under the same device
//! and inode numbers, and a probe there is never hit.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, openat, statx};

use crate::mount::{ExeMount, Mount, OVERLAY, unescape};
use crate::process::{FileId, exe_proc_path};

/// The largest executable that is read: half of the memory that planning may take. A redis-server with
/// all of its debug information is a fifth as large.
const MAX_BYTES: u64 = 128 << 20;

/// Why an executable could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ExecutableError {
    /// It is another user's process, or the file's mode forbids reading it.
    #[error("may not read {}: run as root", .0.display())]
    Denied(PathBuf),
    #[error("{} is not there: has the process ended?", .0.display())]
    Gone(PathBuf),
    #[error(
        "there is no file {}: name a redis-server executable, or the process id of a running server",
        .0.display()
    )]
    Missing(PathBuf),
    /// It is a directory, a device or the like.
    #[error("{} is not a regular file: name a redis-server executable", .0.display())]
    NotAFile(PathBuf),
    #[error("{} is larger than {} MiB, which no redis-server is", .0.display(), MAX_BYTES >> 20)]
    TooLarge(PathBuf),
    #[error("cannot read {}: {}", .0.display(), .1)]
    Other(PathBuf, io::Error),
}

/// Tells a file from others, and from its earlier versions: a key for what was learnt from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExecutableId {
    /// Its device, and its number there.
    pub file: FileId,
    /// Seconds since 1970, and nanoseconds.
    modified: (i64, u32),
    pub bytes: u64,
}

/// An executable that was found. If it was found as `/proc/PID/exe`, it is the one that the process runs even if
/// the file was deleted or replaced, or is in another mount namespace.
///
/// Finding it does not access its file system, which may be one in user space that never answers; reading it does.
#[derive(Debug)]
pub struct Executable {
    /// Opened to locate it, not to read it (`O_PATH`).
    file: File,
    /// Opened to map it, if its file system answers for sure.
    readable: Option<File>,
    path: PathBuf,
    id: ExecutableId,
}

/// A file that is open for reading.
#[derive(Debug)]
pub struct Contents {
    file: File,
    path: PathBuf,
    inode: u64,
    bytes: u64,
}

impl Executable {
    /// Finds a file, or `/proc/PID/exe`.
    pub fn open(path: &Path) -> Result<Self, ExecutableError> {
        let file = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| ExecutableError::of(path, errno.into()))?;
        Self::from_file(file.into(), path)
    }

    /// Finds what a process runs, and opens it for reading, unless its file system may be one in user space: one may
    /// lie beneath an overlay.
    pub fn of_process(pid: u32) -> Result<Self, ExecutableError> {
        let executable = Self::open(&exe_proc_path(pid))?;
        let answers = match Mount::of_exe(pid) {
            Ok(ExeMount::Known(mount)) => !mount.may_hang() && mount.kind != OVERLAY,
            Ok(ExeMount::Unlisted { has_device }) => has_device,
            Ok(ExeMount::Untold) | Err(_) => false,
        };
        Ok(if answers { executable.readable() } else { executable })
    }

    /// Opens it for reading, too, if that is allowed. Waits for its file system.
    pub fn readable(mut self) -> Self {
        self.readable = self.contents().ok().map(|contents| contents.file);
        self
    }

    /// Takes a file that was found as `path`.
    pub fn from_file(file: File, path: &Path) -> Result<Self, ExecutableError> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(&file, "", flags, StatxFlags::BASIC_STATS)
            .map_err(|errno| ExecutableError::of(path, errno.into()))?;
        let kind = FileType::from_raw_mode(found.stx_mode.into());
        check(kind == FileType::RegularFile, found.stx_size, path)?;
        let id = ExecutableId {
            file: FileId::from(&found),
            modified: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
            bytes: found.stx_size,
        };
        Ok(Self { file, readable: None, path: path.to_owned(), id })
    }

    pub fn id(&self) -> ExecutableId {
        self.id
    }

    /// Returns the file for locating it; not for reading, unless it was opened for that, too.
    pub fn file(&self) -> &File {
        self.readable.as_ref().unwrap_or(&self.file)
    }

    /// Opens it for reading. Waits for its file system.
    pub fn contents(&self) -> Result<Contents, ExecutableError> {
        let file = File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
            .map_err(|source| ExecutableError::of(&self.path, source))?;
        Contents::of(file, &self.path)
    }
}

impl Contents {
    /// Takes a file that was opened as `path`.
    pub fn of(file: File, path: &Path) -> Result<Self, ExecutableError> {
        let metadata = file.metadata().map_err(|source| ExecutableError::of(path, source))?;
        check(metadata.is_file(), metadata.len(), path)?;
        Ok(Self { file, path: path.to_owned(), inode: metadata.ino(), bytes: metadata.len() })
    }

    /// Fails if it does not have this number on its device, and so is another file.
    pub fn if_numbered(self, inode: u64) -> Result<Self, ExecutableError> {
        if self.inode == inode { Ok(self) } else { Err(ExecutableError::Missing(self.path)) }
    }

    /// Reads from the file at `offset`. Returns how many bytes were read: fewer at its end.
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    /// Returns all bytes, 128 MiB at most.
    pub fn read(self) -> Result<Vec<u8>, ExecutableError> {
        // Allocated at once: a growing buffer takes up to three times the memory while it moves.
        let mut bytes = Vec::with_capacity(usize::try_from(self.bytes).unwrap_or(0));
        // One more than allowed, to notice a file that has grown since it was opened.
        let mut file = self.file.take(MAX_BYTES + 1);
        file.read_to_end(&mut bytes).map_err(|source| ExecutableError::of(&self.path, source))?;
        check(true, bytes.len() as u64, &self.path)?;
        Ok(bytes)
    }
}

fn check(is_file: bool, bytes: u64, path: &Path) -> Result<(), ExecutableError> {
    if !is_file {
        return Err(ExecutableError::NotAFile(path.to_owned()));
    }
    if bytes > MAX_BYTES { Err(ExecutableError::TooLarge(path.to_owned())) } else { Ok(()) }
}

impl ExecutableError {
    /// Translates what the kernel said about the file at `path`.
    pub fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied(path),
            io::ErrorKind::NotFound if path.starts_with("/proc") => Self::Gone(path),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Missing(path),
            io::ErrorKind::InvalidInput => Self::NotAFile(path),
            _ => Self::Other(path, source),
        }
    }
}

/// The options that name lower layers: several in one, or one each.
const LAYERS: [&str; 2] = ["lowerdir=", "lowerdir+="];
/// What `/proc/PID/exe` appends to the path of a file that was deleted.
const DELETED: &str = " (deleted)";

/// Returns the file beneath what a process executes, in the highest lower layer that has one; `None` if that is not on
/// an overlay, or the agent cannot reach it. `path` is where the process sees its executable.
pub fn lower_file(pid: u32, path: &Path) -> Option<Executable> {
    let Ok(ExeMount::Known(mount)) = Mount::of_exe(pid) else { return None };
    if mount.kind != OVERLAY {
        return None;
    }
    let path = path.to_string_lossy();
    let inside = mount.inside(Path::new(path.strip_suffix(DELETED).unwrap_or(&path)))?;
    lower_layers(&mount.options).find_map(|layer| open_in_layer(&layer.join(&inside)))
}

/// Opens a file of a layer as the agent sees it, or else as the first process of the host does.
fn open_in_layer(file: &Path) -> Option<Executable> {
    ["self", "1"].into_iter().find_map(|process| {
        if Mount::at(process, file).ok()??.may_hang() {
            return None;
        }
        let seen = Path::new("/proc").join(process).join("root").join(file.strip_prefix("/").ok()?);
        Some(Executable::open(&seen).ok()?.readable())
    })
}

/// Returns the lower layers that the options of an overlay name, the highest first.
fn lower_layers(options: &str) -> impl Iterator<Item = PathBuf> {
    let lists = options.split(',').filter_map(|option| LAYERS.iter().find_map(|name| option.strip_prefix(name)));
    let layers = lists.flat_map(|list| {
        // A colon in a path has a backslash before it, which the kernel shows as `\134`.
        let parts = unescape(list).replace("\\:", "\0");
        parts.split(':').map(|path| PathBuf::from(path.replace('\0', ":"))).collect::<Vec<_>>()
    });
    layers.filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use evictscope_testkit::process::Owned;

    use super::{Executable, ExecutableError, MAX_BYTES, exe_proc_path, lower_layers};

    #[test]
    fn a_process_and_its_file_are_the_same() -> anyhow::Result<()> {
        // Not this process itself: a test executable with all its debug information may be too large.
        let process = Owned::start(Command::new("sleep").arg("60"))?;
        let link = exe_proc_path(process.pid());
        let (through_proc, path) = (Executable::open(&link)?, std::fs::read_link(&link)?);
        assert_eq!(through_proc.id(), Executable::open(&path)?.id());
        assert!(through_proc.contents()?.read()? == std::fs::read(path)?);
        Ok(())
    }

    #[test]
    fn what_cannot_be_an_executable_is_refused() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let sparse = directory.path().join("sparse");
        std::fs::File::create(&sparse)?.set_len(MAX_BYTES + 1)?;
        let missing = directory.path().join("missing");
        assert!(matches!(Executable::open(&missing), Err(ExecutableError::Missing(_))));
        assert!(matches!(Executable::open(directory.path()), Err(ExecutableError::NotAFile(_))));
        assert!(matches!(Executable::open(&sparse), Err(ExecutableError::TooLarge(_))));
        Ok(())
    }

    #[test]
    fn layers_are_found_in_both_spellings() {
        for (options, layers) in [
            ("rw,lowerdir=/a\\040b:/c\\134:d:/e,upperdir=/u,workdir=/w", &["/a b", "/c:d", "/e"][..]),
            ("rw,lowerdir+=/a,lowerdir+=/b,upperdir=/u,workdir=/w,uuid=on", &["/a", "/b"]),
            // Relative ones.
            ("rw,lowerdir=l/ABC:l/DEF", &[]),
        ] {
            assert!(lower_layers(options).eq(layers.iter().map(Path::new)), "{options}");
        }
    }
}
