//! When to look at a server's sockets.

use std::time::Duration;

use crate::Snapshot;

/// How often to look at least; everything else of an idle server is read as often.
pub(super) const INTERVAL: Duration = Duration::from_millis(990);
/// No look follows within this many times the CPU time that a look cost the agent: 5 % of a core at most.
const PAUSE: u32 = 20;
/// The same while the main thread is at rest: 1 %.
const PAUSE_AT_REST: u32 = 100;

/// Decides when to look at the sockets of one server.
///
/// While its main thread is at rest, no request waits. So a look is due once a second, and at each reading at which the thread is
/// not at rest, while the server evicts, and while requests wait. Of a server that is not calm, looks at rest belong to the sample,
/// as far as they are cheap.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookPace {
    last: Option<Duration>,
    /// No look before this.
    pause: Duration,
    /// No look at rest before this.
    pause_at_rest: Duration,
    /// The last reading.
    read: Duration,
}

impl LookPace {
    /// Returns whether a look is due at a reading, and if so, whether it is [timed](crate::SocketLook::is_timed). `is_pressing` says
    /// whether the server evicts or requests wait, and `is_woken` whether it was calm and is read because it may not be any more.
    pub fn is_due(&mut self, now: &Snapshot, is_pressing: bool, is_woken: bool) -> Option<bool> {
        let at = now.at;
        let before = std::mem::replace(&mut self.read, at);
        let rests = now.times.is_none() || now.is_resting == Some(true);
        let is_old = |before: Duration| at.saturating_sub(before) >= INTERVAL;
        let is_timed = !is_woken || is_old(before);
        let is_wanted = is_pressing || !rests || self.last.is_none_or(is_old);
        let is_cheap = is_timed && now.times.is_some() && at >= self.pause_at_rest;
        (is_wanted && at >= self.pause || is_cheap).then_some(is_timed)
    }

    /// Notes that a look was made at `at`, which took `cost` of the agent's CPU time.
    pub fn looked(&mut self, at: Duration, cost: Duration) {
        self.last = Some(at);
        self.pause = at + cost * PAUSE;
        self.pause_at_rest = at + cost * PAUSE_AT_REST;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LookPace;
    use crate::{Snapshot, ThreadTimes};

    /// Returns when looks were made, until 3 s after the first; `rests` is whether the thread is at rest at readings, and `is_calm`
    /// whether it was before.
    fn looks(rests: bool, is_pressing: bool, is_calm: bool, cost: u64) -> Vec<u64> {
        let mut pace = LookPace::default();
        let times = (0..=30).map(|tenth| 1_000 + tenth * 100);
        let looks = times.filter(|at| {
            let now = Snapshot {
                at: Duration::from_millis(*at),
                times: Some(ThreadTimes {
                    cpu_ns: 0,
                    waiting_ns: 0,
                }),
                is_resting: rests.then_some(true),
                ..Snapshot::default()
            };
            let is_due = pace.is_due(&now, is_pressing, is_calm).is_some();
            if is_due {
                pace.looked(now.at, Duration::from_millis(cost));
            }
            is_due
        });
        looks.collect()
    }

    #[test]
    fn a_calm_server_is_looked_at_once_a_second() {
        assert_eq!(looks(true, false, true, 1), [1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn where_requests_may_wait_each_reading_has_a_look() {
        assert_eq!(looks(false, false, true, 1).len(), 31);
        assert_eq!(looks(true, true, false, 1).len(), 31);
    }

    #[test]
    fn looks_that_cost_much_are_rare() {
        assert_eq!(looks(false, true, false, 50), [1_000, 2_000, 3_000, 4_000]);
        assert_eq!(
            looks(true, false, false, 4),
            [1_000, 1_400, 1_800, 2_200, 2_600, 3_000, 3_400, 3_800]
        );
    }
}
