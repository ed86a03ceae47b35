//! Remembers which processes are not servers, and looks at them as little as possible.
//!
//! Nearly all processes of a host are of this kind, so they decide the cost of a scan. Most scans only
//! list such a process; in the others one `readlink` tells whether it has executed another program.

use std::collections::HashMap;

use super::observed::ExeLink;

/// A process is looked at in every scan until it has been known for this many: it may be a shell that
/// is about to execute a server.
const YOUNG: u32 = 5;

/// Later it is looked at once in this many scans: at one scan a second, a server that it executes then
/// is still found within 2 s.
const LOOK_EVERY: u32 = 2;

/// Once in this many scans it is looked at in full, because its pid may have gone to another process
/// with the same executable, or it may have changed its title. A multiple of `LOOK_EVERY`.
const FULL_LOOK_EVERY: u32 = 48;

/// Processes that are not servers, by pid.
#[derive(Debug, Default)]
pub(super) struct Unrelated {
    round: u32,
    before: HashMap<u32, Remembered>,
    now: HashMap<u32, Remembered>,
}

/// A remembered process.
#[derive(Debug)]
pub(super) struct Remembered {
    fingerprint: Fingerprint,
    /// The scan that saw this program first.
    since: u32,
}

/// Something cheap to read that changes when a process executes another program.
#[derive(Debug, PartialEq, Eq)]
enum Fingerprint {
    Exe(ExeLink),
    /// The name, if the link may not be read.
    Comm(Vec<u8>),
}

impl Unrelated {
    /// Begins a scan. Processes that it does not look at are forgotten at the next.
    pub(super) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.before = std::mem::take(&mut self.now);
    }

    /// Returns `None` if the process is still not a server. Otherwise it has to be looked at in full;
    /// if that finds no server, pass the result to [`Self::remember`].
    pub(super) fn look(&mut self, pid: u32) -> Option<Remembered> {
        let since = self.round;
        let new = |fingerprint| Some(Remembered { fingerprint, since });
        let Some(known) = self.before.remove(&pid) else { return new(Fingerprint::take(pid)) };
        // Spreads them over the scans.
        let turn = self.round.wrapping_add(pid);
        let is_young = self.round.wrapping_sub(known.since) < YOUNG;
        if !is_young && !turn.is_multiple_of(LOOK_EVERY) {
            self.remember(pid, known);
            return None;
        }
        let fingerprint = Fingerprint::take(pid);
        if fingerprint != known.fingerprint {
            return new(fingerprint);
        }
        if turn.is_multiple_of(FULL_LOOK_EVERY) {
            return Some(known);
        }
        self.remember(pid, known);
        None
    }

    pub(super) fn put_off(&mut self, pid: u32) {
        if let Some(known) = self.before.remove(&pid) {
            self.remember(pid, known);
        }
    }

    pub(super) fn remember(&mut self, pid: u32, known: Remembered) {
        self.now.insert(pid, known);
    }
}

impl Fingerprint {
    fn take(pid: u32) -> Self {
        match ExeLink::read(pid) {
            ExeLink::Denied => Self::Comm(std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default()),
            link => Self::Exe(link),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FULL_LOOK_EVERY, Unrelated};

    #[test]
    fn a_process_is_looked_at_in_full_at_first_and_then_rarely() {
        let pid = std::process::id();
        let mut unrelated = Unrelated::default();
        let mut full_looks = Vec::new();
        for scan in 0..=FULL_LOOK_EVERY {
            unrelated.begin();
            if let Some(known) = unrelated.look(pid) {
                full_looks.push(scan);
                unrelated.remember(pid, known);
            }
        }
        assert_eq!(full_looks.first(), Some(&0));
        assert!((2..=3).contains(&full_looks.len()), "{full_looks:?}");
    }

    #[test]
    fn a_process_that_has_gone_is_forgotten() {
        let mut unrelated = Unrelated::default();
        unrelated.begin();
        if let Some(known) = unrelated.look(std::process::id()) {
            unrelated.remember(std::process::id(), known);
        }
        for _ in 0..2 {
            assert_eq!(unrelated.now.len() + unrelated.before.len(), 1);
            unrelated.begin();
        }
        assert!(unrelated.now.is_empty() && unrelated.before.is_empty());
    }
}
