//! Keeps a process that is slow to look at from taking the time of all others.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A look that takes longer is slow. Most take some ten microseconds.
const SLOW: Duration = Duration::from_millis(20);

/// After a slow look, a process is left alone for this many times as long: no process takes more than a tenth
/// of a scanner's time.
const REST: u32 = 10;

/// How long after that it comes last.
const LAST: Duration = Duration::from_secs(60);

/// Until when to leave slow processes alone, by pid.
#[derive(Debug, Default)]
pub(super) struct Slow(HashMap<u32, Instant>);

impl Slow {
    /// Returns whether to leave a process alone now.
    pub(super) fn rests(&self, pid: u32, now: Instant) -> bool {
        self.0.get(&pid).is_some_and(|until| now < *until)
    }

    /// Returns by what to sort processes: those that were slow come last, and of these the one that was looked at last.
    pub(super) fn rank(&self, pid: u32) -> Option<Instant> {
        self.0.get(&pid).copied()
    }

    /// Takes note of how long a look took that ended now.
    pub(super) fn looked(&mut self, pid: u32, took: Duration, now: Instant) {
        if took > SLOW {
            tracing::debug!(pid, ?took, "this process is slow to look at");
            self.0.insert(pid, now + took.saturating_mul(REST));
        }
    }

    /// Forgets the processes that were not slow of late.
    pub(super) fn forget(&mut self, now: Instant) {
        self.0.retain(|_, until| now < *until + LAST);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Slow;

    #[test]
    fn a_slow_process_is_left_alone_for_a_while_and_no_other_is() {
        let (mut slow, start) = (Slow::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        slow.looked(1, Duration::from_secs(2), start);
        slow.looked(2, Duration::from_millis(2), start);
        for (second, rests) in [(1, true), (19, true), (20, false)] {
            slow.forget(at(second));
            assert_eq!(slow.rests(1, at(second)), rests, "{second} s later");
            assert!(!slow.rests(2, at(second)));
        }
        assert!(slow.rank(2) < slow.rank(1));
        slow.forget(at(80));
        assert!(slow.0.is_empty());
    }
}
