//! Logs once what goes wrong in scan after scan, and once that it is over.

use std::collections::HashMap;

use procfs::ProcError;
use rustix::io::Errno;

use crate::confinement::{Confinement, MORE_FILES};

/// A trouble is over after this many scans without it. One that comes and goes is one trouble.
const OVER_AFTER: u32 = 10;

/// The troubles that last, and the number of scans since each was met.
#[derive(Debug, Default)]
pub(super) struct Troubles(HashMap<String, u32>);

impl Troubles {
    /// Takes note of an error, and logs it if it is of a new kind. The end of a process is no trouble.
    pub(super) fn met(&mut self, pid: Option<u32>, error: &ProcError) {
        let Some(kind) = kind(error) else {
            tracing::debug!(pid, %error, "this process has ended");
            return;
        };
        if self.begins(kind.clone()) {
            tracing::warn!(
                pid,
                %error,
                "cannot look at the processes of this host: {kind}. Servers that are watched keep their \
                 series; others may not be found until this is over"
            );
        }
    }

    /// Ends a scan, and logs which troubles are over.
    pub(super) fn end_scan(&mut self) {
        for kind in self.over() {
            tracing::info!("processes can be looked at again. It was: {kind}");
        }
    }

    fn begins(&mut self, kind: String) -> bool {
        self.0.insert(kind, 0).is_none()
    }

    fn over(&mut self) -> Vec<String> {
        for scans in self.0.values_mut() {
            *scans += 1;
        }
        self.0.extract_if(|_, scans| *scans > OVER_AFTER).map(|(kind, _)| kind).collect()
    }
}

/// Returns what went wrong and what to do, without naming the process; `None` for the end of a process.
fn kind(error: &ProcError) -> Option<String> {
    let [full, gone] = [Errno::MFILE, Errno::SRCH].map(|errno| Some(errno.raw_os_error()));
    Some(match error {
        ProcError::NotFound(_) => return None,
        // A file of a process that has ended since it was opened.
        ProcError::Io(error, _) if error.raw_os_error() == gone => return None,
        ProcError::PermissionDenied(_) => format!("permission denied; {}", Confinement::of_process().lacks_others()),
        ProcError::Io(error, _) if error.raw_os_error() == full => format!("too many open files: {MORE_FILES}"),
        ProcError::Io(error, _) => error.to_string(),
        ProcError::Incomplete(_) | ProcError::Other(_) | ProcError::InternalError(_) => {
            "a file in /proc cannot be parsed; please report this".to_owned()
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Error;

    use procfs::ProcError;
    use rustix::io::Errno;

    use super::{OVER_AFTER, Troubles, kind};

    #[test]
    fn a_trouble_begins_once_and_is_over_once() {
        let mut troubles = Troubles::default();
        let full = || "too many open files".to_owned();
        assert!(troubles.begins(full()));
        // In every second scan.
        for _ in 0..3 * OVER_AFTER {
            assert!(!troubles.begins(full()));
            assert!(troubles.over().is_empty() && troubles.over().is_empty());
        }
        assert!(troubles.begins("permission denied".to_owned()));
        let over: Vec<String> = (0..3 * OVER_AFTER).flat_map(|_| troubles.over()).collect();
        assert_eq!(over, [full(), "permission denied".to_owned()]);
        assert!(troubles.begins(full()));
    }

    #[test]
    fn the_kind_says_nothing_of_the_process() {
        let of =
            |error: Errno, pid: u32| kind(&ProcError::Io(Error::from(error), Some(format!("/proc/{pid}/stat").into())));
        assert!(of(Errno::MFILE, 1).is_some_and(|kind| kind.contains("LimitNOFILE")));
        assert!(of(Errno::INTR, 1).is_some_and(|kind| kind.contains("Interrupted")));
        assert_eq!(of(Errno::INTR, 1), of(Errno::INTR, 2));
        assert_eq!(kind(&ProcError::NotFound(None)), None);
        assert_eq!(of(Errno::SRCH, 1), None);
    }
}
