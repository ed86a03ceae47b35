//! When to look at a server's sockets.

use std::time::Duration;

use super::{Snapshot, ThreadTimes};

/// How often at least.
const INTERVAL: Duration = Duration::from_millis(990);
/// A look that cost the agent some CPU time is the last one for this many times as long: 5 % of a core at most.
const PAUSE: u32 = 20;
/// The kernel brings a thread's CPU time up to date at each tick, 10 ms apart at most: a thread that lacks no more of the time
/// between two readings may not have rested in it.
const TICK: Duration = Duration::from_millis(10);

/// Decides when to look at the sockets of one server.
///
/// While its main thread comes to rest between two readings, no request waits for long. So a look is due once a second,
/// and at each reading since whose last one the thread did not come to rest, while it evicts, and while requests wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct LookPace {
    last: Option<Duration>,
    /// No look before this.
    pause: Duration,
    read: Option<(Duration, ThreadTimes)>,
}

impl LookPace {
    /// Tells whether a look is due at a reading. `is_pressing` tells whether the server evicts, or requests wait.
    pub fn is_due(&mut self, now: &Snapshot, is_pressing: bool) -> bool {
        let at = now.at;
        let read = now.times.map(|times| (at, times));
        let before = std::mem::replace(&mut self.read, read);
        let rested = read
            .zip(before)
            .is_none_or(|(now, before)| rested(before, now));
        let is_old = |last: Duration| at.saturating_sub(last) >= INTERVAL;
        let is_wanted = is_pressing || !rested || now.is_resting == Some(false);
        (is_wanted || self.last.is_none_or(is_old)) && at >= self.pause
    }

    /// Takes in that a look was made at `at`, which took `cost` of the agent's CPU time.
    pub fn looked(&mut self, at: Duration, cost: Duration) {
        self.last = Some(at);
        self.pause = at + cost * PAUSE;
    }
}

/// Tells whether a thread had nothing to do for some of the time between two readings.
fn rested(before: (Duration, ThreadTimes), now: (Duration, ThreadTimes)) -> bool {
    let work = |times: ThreadTimes| Duration::from_nanos(times.cpu_ns + times.waiting_ns);
    let worked = work(now.1).saturating_sub(work(before.1));
    now.0.saturating_sub(before.0) > worked + TICK
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LookPace;
    use crate::{Snapshot, ThreadTimes};

    fn reading(at: u64, cpu: u64) -> Snapshot {
        Snapshot {
            at: Duration::from_millis(at),
            times: Some(ThreadTimes {
                cpu_ns: cpu * 1_000_000,
                waiting_ns: 0,
            }),
            is_resting: Some(true),
            ..Snapshot::default()
        }
    }

    /// Returns when looks were made of a thread that works this part of each 100 ms, until 3 s.
    fn looks(work: u64, change: impl Fn(&mut Snapshot), is_pressing: bool, cost: u64) -> Vec<u64> {
        let mut pace = LookPace::default();
        let readings = (0..=30).map(|tenth| (1_000 + tenth * 100, tenth * work));
        let looks = readings.filter_map(|(at, cpu)| {
            let mut now = reading(at, cpu);
            change(&mut now);
            let is_due = pace.is_due(&now, is_pressing);
            is_due.then(|| {
                pace.looked(now.at, Duration::from_millis(cost));
                at
            })
        });
        looks.collect()
    }

    #[test]
    fn a_calm_server_is_looked_at_once_a_second() {
        assert_eq!(looks(60, |_| (), false, 1), [1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn where_requests_may_wait_each_reading_has_a_look() {
        assert_eq!(looks(96, |_| (), false, 1).len(), 31);
        assert_eq!(looks(60, |_| (), true, 1).len(), 31);
        // It sleeps elsewhere than in its event loop.
        let blocked = |now: &mut Snapshot| now.is_resting = Some(false);
        assert_eq!(looks(0, blocked, false, 1).len(), 31);
    }

    #[test]
    fn looks_that_cost_much_are_rare() {
        assert_eq!(looks(96, |_| (), true, 50), [1_000, 2_000, 3_000, 4_000]);
    }

    #[test]
    fn where_times_are_not_known_it_is_looked_at_once_a_second() {
        let unknown = |now: &mut Snapshot| (now.times, now.is_resting) = (None, None);
        assert_eq!(looks(60, unknown, false, 1).len(), 4);
    }
}
