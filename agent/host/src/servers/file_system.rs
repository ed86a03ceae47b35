//! Finds executables on file systems that may never answer: a probe in one could stop the whole host.
//!
//! While the kernel places a probe, no process can fork (`dup_mmap_sem`, kernel/events/uprobes.c), and it may have to
//! read the page from the file first. On Linux 6.18 every fork waited for as long as a file system in user space did
//! not answer.

use std::io;

use crate::files::mount::{Found, Mount};

/// Returns why no probe may be placed in what a process runs, if none may. Does not access the file system.
///
/// # Errors
///
/// Fails if the process has ended, or may not be looked into.
pub fn unanswering(pid: u32) -> io::Result<Option<String>> {
    Ok(match Mount::of_exe(pid)? {
        Found::Mount(mount) => mount.may_hang().then(|| {
            format!(
                "its executable is on a file system in user space ({}), which could stop the whole host while a \
                 probe is placed: start it from another",
                mount.kind
            )
        }),
        // A disk is known to answer.
        Found::Unlisted { has_device: false } => Some(
            "the mount of its executable cannot be seen, so it may be a file system in user space, which could \
             stop the whole host while a probe is placed: start it from one that is mounted"
                .to_owned(),
        ),
        Found::Unlisted { has_device: true } | Found::Untold => None,
    })
}

#[cfg(test)]
mod tests {
    use super::unanswering;

    #[test]
    fn what_runs_here_may_be_probed() -> std::io::Result<()> {
        assert_eq!(unanswering(std::process::id())?, None);
        Ok(())
    }
}
