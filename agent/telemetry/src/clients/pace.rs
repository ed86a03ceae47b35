//! When everything of a server is read, and when its sockets are looked at.

use std::time::Duration;

use crate::{Snapshot, ThreadReading};

/// How often to look at least; everything else of an idle server is read as often.
const INTERVAL: Duration = Duration::from_millis(990);
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

/// A server that has used at most this much CPU time since everything was last read has done nothing worth reading. Its
/// cron takes some 1 ms a second.
const LITTLE_NS: u64 = 2_000_000;

/// Decides at which readings of a server everything is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Calm {
    /// When everything was last read, and the main thread's CPU time then.
    last: Option<(Duration, u64)>,
}

impl Calm {
    /// Returns whether a reading of the main thread shows that the server is calm: the thread sleeps in its event loop,
    /// and has hardly run since everything was last read.
    pub fn is_calm(&self, now: &ThreadReading) -> bool {
        let hardly_ran = |before_ns| now.times.cpu_ns.saturating_sub(before_ns) <= LITTLE_NS;
        now.is_resting == Some(true) && self.last.is_some_and(|(_, before_ns)| hardly_ran(before_ns))
    }

    /// Returns whether everything must be read: the server is not calm, or everything was last read a second ago.
    pub fn is_due(&self, now: &ThreadReading) -> bool {
        let is_old = |at| now.at.saturating_sub(at) >= INTERVAL;
        !self.is_calm(now) || self.last.is_some_and(|(at, _)| is_old(at))
    }

    /// Notes that everything is read with this reading.
    pub fn read_all(&mut self, now: &ThreadReading) {
        self.last = Some((now.at, now.times.cpu_ns));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Calm, LookPace};
    use crate::{Snapshot, ThreadReading, ThreadTimes};

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
    fn each_reading_has_a_look_where_requests_may_wait_and_looks_are_cheap() {
        let once_a_second = [1_000, 2_000, 3_000, 4_000];
        assert_eq!(looks(true, false, 1), once_a_second, "a calm server");
        assert_eq!(looks(false, false, 1).len(), 31);
        assert_eq!(looks(true, true, 1).len(), 31);
        assert_eq!(looks(false, true, 50), once_a_second, "looks that cost much");
    }

    /// Returns at which tenths of a second everything is read, for a thread that is read every 100 ms for 2 s and uses
    /// `us` microseconds of CPU time each time.
    fn read(us: u64, is_resting: Option<bool>) -> Vec<u64> {
        let mut calm = Calm::default();
        let tenths = 0..=20;
        let whole = tenths.filter(|tenth| {
            let reading = ThreadReading {
                at: Duration::from_millis(tenth * 100),
                times: ThreadTimes { cpu_ns: tenth * us * 1_000, waiting_ns: 0 },
                is_resting,
                sleeps: None,
            };
            let is_due = calm.is_due(&reading);
            if is_due {
                calm.read_all(&reading);
            }
            is_due
        });
        whole.collect()
    }

    #[test]
    fn a_server_that_only_has_its_cron_is_read_once_a_second_and_others_each_time() {
        assert_eq!(read(80, Some(true)), [0, 10, 20]);
        for (us, is_resting) in [(2_100, Some(true)), (0, None), (0, Some(false))] {
            assert_eq!(read(us, is_resting).len(), 21, "{us} {is_resting:?}");
        }
    }
}
