//! When a main thread last came to rest.

use std::time::Duration;

use super::ThreadTimes;

/// The kernel brings a thread's CPU time up to date when it is switched out and at each tick, 10 ms apart at most: one that
/// lacks no more of the time between two readings may not have rested in it.
const TICK: Duration = Duration::from_millis(10);

/// Follows whether a main thread comes to rest: sleeps in its event loop, as there is nothing that it could read or answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    read: Option<(Duration, ThreadTimes)>,
    /// Whether it slept elsewhere at the last reading.
    was_blocked: bool,
    last: Option<Duration>,
}

impl Rest {
    /// Takes in a reading at `at`, monotonic. Returns when the thread last came to rest, as far as is known: it may have done so a
    /// little later.
    pub fn follow(
        &mut self,
        at: Duration,
        times: Option<ThreadTimes>,
        is_resting: Option<bool>,
    ) -> Option<Duration> {
        let now = times.map(|times| (at, times));
        let before = std::mem::replace(&mut self.read, now);
        let was_blocked = std::mem::replace(&mut self.was_blocked, is_resting == Some(false));
        let had_time = before
            .zip(now)
            .is_some_and(|(before, now)| lacks_work(before, now));
        if is_resting == Some(true) {
            self.last = Some(at);
        } else if had_time && !was_blocked && !self.was_blocked {
            self.last = self.last.max(before.map(|(at, _)| at));
        }
        self.last
    }
}

/// Tells whether a thread neither ran nor waited for a CPU for some of the time between two readings.
fn lacks_work(before: (Duration, ThreadTimes), now: (Duration, ThreadTimes)) -> bool {
    let work = |times: ThreadTimes| Duration::from_nanos(times.cpu_ns + times.waiting_ns);
    let worked = work(now.1).saturating_sub(work(before.1));
    now.0.saturating_sub(before.0) > worked + TICK
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rest;
    use crate::ThreadTimes;

    /// A reading: its time, CPU time until then, and whether the thread rests, in milliseconds. Returns when it last rested.
    fn last(readings: &[(u64, u64, Option<bool>)]) -> Option<u128> {
        let mut rest = Rest::default();
        let mut last = None;
        for (at, cpu, is_resting) in readings {
            let times = ThreadTimes {
                cpu_ns: cpu * 1_000_000,
                waiting_ns: 0,
            };
            last = rest.follow(Duration::from_millis(*at), Some(times), *is_resting);
        }
        last.map(|last| last.as_millis())
    }

    #[test]
    fn a_thread_that_is_seen_to_rest_does() {
        assert_eq!(last(&[(100, 0, Some(true))]), Some(100));
        assert_eq!(last(&[(100, 0, Some(true)), (200, 100, None)]), Some(100));
    }

    #[test]
    fn a_thread_that_had_time_has_rested_meanwhile() {
        assert_eq!(last(&[(100, 0, None), (200, 60, None)]), Some(100));
        // CPU time shows up to a tick late.
        assert_eq!(last(&[(100, 0, None), (200, 90, None)]), None);
    }

    #[test]
    fn a_thread_that_sleeps_elsewhere_does_not_rest() {
        let stopped = [
            (100, 0, Some(false)),
            (200, 0, Some(false)),
            (300, 60, None),
        ];
        assert_eq!(last(&stopped), None);
        assert_eq!(last(&[(100, 0, None), (200, 0, Some(false))]), None);
    }
}
