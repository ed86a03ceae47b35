//! Tells a file from every other one.

use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Statx, StatxFlags, makedev, statx};

/// Which file it is, whatever it is called, and even if it no longer has a name. Another file can get the
/// same numbers only once nothing uses this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the file that a path leads to, without reading from it.
    pub fn of(path: &Path) -> io::Result<Self> {
        // A file system in user space (FUSE) may never answer, and it need not be asked for these two.
        let flags = AtFlags::STATX_DONT_SYNC;
        Ok(Self::from(&statx(CWD, path, flags, StatxFlags::INO)?))
    }

    /// Returns the device that it is on.
    pub fn device(self) -> u64 {
        self.device
    }

    /// Returns its number there.
    pub fn inode(self) -> u64 {
        self.inode
    }
}

impl From<&Statx> for FileId {
    fn from(found: &Statx) -> Self {
        Self { device: makedev(found.stx_dev_major, found.stx_dev_minor), inode: found.stx_ino }
    }
}

#[cfg(test)]
mod tests {
    use super::FileId;

    #[test]
    fn a_file_keeps_its_id_and_no_other_has_it() -> std::io::Result<()> {
        let directory = tempfile::tempdir()?;
        let (path, moved) = (directory.path().join("a"), directory.path().join("b"));
        std::fs::write(&path, "one")?;
        let file = FileId::of(&path)?;
        assert_eq!(FileId::of(&path)?, file);
        std::fs::rename(&path, &moved)?;
        std::fs::write(&path, "one")?;
        assert_eq!(FileId::of(&moved)?, file);
        assert_ne!(FileId::of(&path)?, file);
        Ok(())
    }
}
