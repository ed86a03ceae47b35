//! The mount of the file that a process executes, and whether a probe may be placed there: its file system may never
//! answer. Finding it does not access the file system.
//!
//! While the kernel places a probe, no process can fork (`dup_mmap_sem`, kernel/events/uprobes.c), and it may have to
//! read the page from the file first. On Linux 6.18 every fork waited for as long as a file system in user space did
//! not answer.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::process::exe_proc_path;

/// The most bytes of a list of mounts: anybody may have 100,000 of them in a namespace of his own.
const MOST_BYTES: u64 = 16 << 20;

pub const OVERLAY: &str = "overlay";

/// A mount, as `/proc/PID/mountinfo` describes it (`proc_pid_mountinfo(5)`).
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which directory of its file system is mounted.
    root: PathBuf,
    /// Where it is mounted.
    point: PathBuf,
    pub kind: String,
    pub options: String,
}

/// What is known of the mount of an executable.
pub enum ExeMount {
    Known(Mount),
    /// It is in no list that the agent sees. `has_device` says whether its file system is on a disk.
    Unlisted {
        has_device: bool,
    },
    /// The kernel does not tell (before Linux 5.8).
    Untold,
}

impl Mount {
    /// Finds the mount of what a process executes. Fails if the process has ended, or may not be looked into.
    pub fn of_exe(pid: u32) -> io::Result<ExeMount> {
        let flags = AtFlags::STATX_DONT_SYNC;
        let found = statx(CWD, exe_proc_path(pid), flags, StatxFlags::MNT_ID)?;
        if !StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
            return Ok(ExeMount::Untold);
        }
        // If a process has changed its root, its own list may lack the mount.
        let id = found.stx_mnt_id.to_string();
        for process in [&*pid.to_string(), "self"] {
            let mounts = mounts(process)?;
            let line = mounts.lines().find(|line| line.split(' ').next() == Some(&id));
            if let Some(mount) = line.and_then(Self::parse) {
                return Ok(ExeMount::Known(mount));
            }
        }
        // Major number 0 means that there is no device.
        Ok(ExeMount::Unlisted { has_device: found.stx_dev_major != 0 })
    }

    /// Finds the mount that a process (`self`, or a pid) sees at an absolute path, without following it.
    pub fn at(process: &str, path: &Path) -> io::Result<Option<Self>> {
        let mounts = mounts(process)?;
        let around = mounts.lines().filter_map(Self::parse).filter(|mount| path.starts_with(&mount.point));
        // Of several at one place, the last one is seen.
        Ok(around.max_by_key(|mount| mount.point.as_os_str().len()))
    }

    /// Returns whether its file system may never answer, as one in user space may not.
    pub fn may_hang(&self) -> bool {
        self.kind.starts_with("fuse")
    }

    /// Returns where a file that is seen as `path` is in the file system.
    pub fn inside(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.point).ok()?;
        Some(self.root.strip_prefix("/").ok()?.join(below))
    }

    /// Parses a line. The crate procfs rejects a list in which a mount has an empty source, and anybody's may.
    fn parse(line: &str) -> Option<Self> {
        let (seen, file_system) = line.split_once(" - ")?;
        let mut seen = seen.split(' ').skip(3);
        let (root, point) = (seen.next()?, seen.next()?);
        let mut file_system = file_system.splitn(3, ' ');
        Some(Self {
            root: unescape(root).into(),
            point: unescape(point).into(),
            kind: file_system.next()?.to_owned(),
            options: file_system.nth(1).unwrap_or_default().to_owned(),
        })
    }
}

fn mounts(process: &str) -> io::Result<String> {
    let mut mounts = Vec::new();
    File::open(format!("/proc/{process}/mountinfo"))?.take(MOST_BYTES).read_to_end(&mut mounts)?;
    Ok(String::from_utf8_lossy(&mounts).into_owned())
}

/// Returns a path without the octal escapes of the kernel (`seq_escape`): `\040` is a space.
pub fn unescape(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let rest = if code.is_some() { &part[3..] } else { part };
        bytes.push(code.unwrap_or(b'\\'));
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns why no probe may be placed in what a process runs, if none may. Does not access the file system. Fails if
/// the process has ended, or may not be looked into.
pub fn unanswering(pid: u32) -> io::Result<Option<String>> {
    Ok(match Mount::of_exe(pid)? {
        ExeMount::Known(mount) => mount.may_hang().then(|| {
            format!(
                "its executable is on a file system in user space ({}), which could stop the whole host while a \
                 probe is placed: start it from another",
                mount.kind
            )
        }),
        // A disk is known to answer.
        ExeMount::Unlisted { has_device: false } => Some(
            "the mount of its executable cannot be seen, so it may be a file system in user space, which could \
             stop the whole host while a probe is placed: start it from one that is mounted"
                .to_owned(),
        ),
        ExeMount::Unlisted { has_device: true } | ExeMount::Untold => None,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Mount, unanswering};

    #[test]
    fn a_line_is_a_mount() {
        let mounts = [
            "21 1 0:20 / /a\\040-\\040b rw shared:7 - ext4 /dev/root rw",
            "211 21 0:40 /d /c rw,nosuid - fuse.sshfs  rw,user_id=0",
        ];
        let [plain, fuse] = mounts.map(Mount::parse);
        assert!(plain.is_some_and(|mount| mount.kind == "ext4"
            && !mount.may_hang()
            && mount.inside(Path::new("/a - b/c")).as_deref() == Some(Path::new("c"))));
        assert!(fuse.is_some_and(|mount| mount.options == "rw,user_id=0"
            && mount.may_hang()
            && mount.inside(Path::new("/c/e")).as_deref() == Some(Path::new("d/e"))));
        assert_eq!(Mount::parse("21 1 0:20 / /a rw"), None);
    }

    #[test]
    fn what_runs_here_may_be_probed() {
        assert!(unanswering(std::process::id()).is_ok_and(|why| why.is_none()));
    }
}
