//! When to look at a server's sockets.

use std::time::Duration;

use crate::Snapshot;

/// How often to look at least; everything else of an idle server is read as often.
pub(super) const INTERVAL: Duration = Duration::from_millis(990);
/// No look follows within this many times the CPU time that a look cost the agent: 5 % of a core at most.
const PAUSE: u32 = 20;
/// Decides when to look at the sockets of one server.
///
/// While its main thread is at rest, no request waits. So a look is due once a second, and at each reading at which the
/// thread is not at rest, while the server evicts, and while requests wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookPace {
    last: Option<Duration>,
    /// No look before this.
    pause: Duration,
}

impl LookPace {
    /// Returns whether a look is due at a reading. `is_pressing` is whether the server evicts or requests wait.
    pub fn is_due(&self, now: &Snapshot, is_pressing: bool) -> bool {
        let at = now.at;
        let rests = now.times.is_none() || now.is_resting == Some(true);
        let is_old = |last: Duration| at.saturating_sub(last) >= INTERVAL;
        let is_wanted = is_pressing || !rests;
        (is_wanted || self.last.is_none_or(is_old)) && at >= self.pause
    }

    /// Notes that a look was made at `at`, which took `cost` of the agent's CPU time.
    pub fn looked(&mut self, at: Duration, cost: Duration) {
        self.last = Some(at);
        self.pause = at + cost * PAUSE;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LookPace;
    use crate::{Snapshot, ThreadTimes};

    /// Returns when looks were made, until 3 s after the first; `rests` is whether the thread is at rest at readings.
    fn looks(rests: bool, is_pressing: bool, cost: u64) -> Vec<u64> {
        let mut pace = LookPace::default();
        let times = (0..=30).map(|tenth| 1_000 + tenth * 100);
        let looks = times.filter(|at| {
            let now = Snapshot {
                at: Duration::from_millis(*at),
                times: Some(ThreadTimes { cpu_ns: 0, waiting_ns: 0 }),
                is_resting: rests.then_some(true),
                ..Snapshot::default()
            };
            let is_due = pace.is_due(&now, is_pressing);
            if is_due {
                pace.looked(now.at, Duration::from_millis(cost));
            }
            is_due
        });
        looks.collect()
    }

    #[test]
    fn a_calm_server_is_looked_at_once_a_second() {
        assert_eq!(looks(true, false, 1), [1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn where_requests_may_wait_each_reading_has_a_look() {
        assert_eq!(looks(false, false, 1).len(), 31);
        assert_eq!(looks(true, true, 1).len(), 31);
    }

    #[test]
    fn looks_that_cost_much_are_rare() {
        assert_eq!(looks(false, true, 50), [1_000, 2_000, 3_000, 4_000]);
    }
}
