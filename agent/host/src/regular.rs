//! Opens files that somebody else chose: only regular ones.
//!
//! Opening a device may do something, and opening a pipe waits for its other end, so what is there is looked at before
//! it is opened.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, openat, openat2, statx};

use crate::executable::ExecutableError;

/// Opens a regular file for reading. With `OFlags::NOFOLLOW`, a symbolic link is none. Fails if it is something else,
/// or cannot be opened.
pub fn open_regular(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    reopened(&openat(CWD, path, flags, Mode::empty())?)
}

/// Returns all bytes of a regular file, `most` at most. Fails as [`open_regular`] does, and if it is larger.
pub fn read_regular(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path, OFlags::empty())?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Opens a regular file as a process with the root directory `root` would: symbolic links lead to files below it.
pub(crate) fn open_in(root: &Path, path: &Path) -> Result<File, ExecutableError> {
    let open = || {
        let directory = openat(CWD, root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        reopened(&openat2(directory, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?)
    };
    open().map_err(|error| ExecutableError::of(path, error))
}

/// Opens for reading what was found with `O_PATH`, if it is a regular file.
fn reopened(found: &OwnedFd) -> io::Result<File> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let mode = statx(found, "", flags, StatxFlags::TYPE)?.stx_mode;
    match FileType::from_raw_mode(mode.into()) {
        FileType::RegularFile => File::open(format!("/proc/self/fd/{}", found.as_raw_fd())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

    use super::{open_regular, read_regular};

    #[test]
    fn only_regular_files_are_opened_and_of_limited_size() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.path().join(name));
        std::fs::write(&file, "12345")?;
        std::os::unix::fs::symlink(&file, &link)?;
        // It has no other end: whoever opened it would wait.
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0)?;
        for regular in [&file, &link] {
            assert_eq!(read_regular(regular, 5)?, b"12345");
            assert!(read_regular(regular, 4).is_err());
        }
        for other in [Path::new("/dev/zero"), Path::new("/dev/tty"), folder.path(), &pipe] {
            let read = read_regular(other, 5).map_err(|error| error.kind());
            assert_eq!(read, Err(ErrorKind::InvalidInput), "{}", other.display());
        }
        assert!(open_regular(&link, OFlags::NOFOLLOW).is_err());
        Ok(())
    }
}
