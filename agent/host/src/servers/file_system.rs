//! Finds executables on file systems that may never answer: a probe in one could stop the whole host.
//!
//! While the kernel places a probe, no process can fork (`dup_mmap_sem`, kernel/events/uprobes.c), and it may have to read the
//! page from the file first. On Linux 6.18 every fork waited for as long as a file system in user space did not answer.

use std::io;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::process::identity::exe_proc_path;

/// Returns why no probe may be placed in what a process runs, if none may. Does not access the file system.
///
/// # Errors
///
/// Fails if the process has ended, or may not be looked into.
pub fn unanswering(pid: u32) -> io::Result<Option<String>> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let found = statx(CWD, exe_proc_path(pid), flags, StatxFlags::MNT_ID)?;
    if !StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID) {
        // Before Linux 5.8.
        return Ok(None);
    }
    // If a process has changed its root, its own list may lack the mount.
    let lists = [
        format!("/proc/{pid}/mountinfo"),
        "/proc/self/mountinfo".to_owned(),
    ];
    for list in lists {
        let mounts = std::fs::read(list)?;
        let mounts = String::from_utf8_lossy(&mounts);
        if let Some(kind) = type_of(&mounts, found.stx_mnt_id) {
            return Ok(kind.starts_with("fuse").then(|| {
                format!(
                    "its executable is on a file system in user space ({kind}), which could stop the whole host while a \
                     probe is placed: start it from another"
                )
            }));
        }
    }
    // Major number 0 means that there is no device. A disk is known to answer.
    Ok((found.stx_dev_major == 0).then(|| {
        "the mount of its executable cannot be seen, so it may be a file system in user space, which could \
         stop the whole host while a probe is placed: start it from one that is mounted"
            .to_owned()
    }))
}

/// Returns the type of the file system of a mount (`proc_pid_mountinfo(5)`). The crate procfs rejects a list in which a mount
/// has an empty source, and anybody's may.
fn type_of(mounts: &str, id: u64) -> Option<&str> {
    let id = id.to_string();
    let mut lines = mounts.lines();
    let line = lines.find(|line| line.split(' ').next() == Some(&id))?;
    line.split_once(" - ")?.1.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::{type_of, unanswering};

    #[test]
    fn the_type_is_that_of_the_mount() {
        let mounts = "21 1 0:20 / /a\\040-\\040b rw shared:7 - ext4 /dev/root rw\n\
                      211 21 0:40 / /c rw,nosuid - fuse.sshfs  rw,user_id=0\n";
        assert_eq!(type_of(mounts, 21), Some("ext4"));
        assert_eq!(type_of(mounts, 211), Some("fuse.sshfs"));
        assert_eq!(type_of(mounts, 2), None);
    }

    #[test]
    fn what_runs_here_may_be_probed() -> std::io::Result<()> {
        assert_eq!(unanswering(std::process::id())?, None);
        Ok(())
    }
}
