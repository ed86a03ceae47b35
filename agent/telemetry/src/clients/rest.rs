//! When a main thread was at rest.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ThreadTimes;

/// The longest tick of a kernel. The kernel updates a thread's CPU time when the thread is switched out and at each
/// tick, and tells to a tick when data came.
pub(super) const TICK: Duration = Duration::from_millis(10);

/// A reading of a main thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadReading {
    pub at: Duration,
    pub times: ThreadTimes,
    /// Whether it slept in its event loop; `None` if it ran, or if that is not known.
    pub is_resting: Option<bool>,
    /// How often it has gone to sleep; `None` if that is not known.
    pub sleeps: Option<u64>,
}

/// How many readings are kept at which a thread was at rest: those of two seconds, as a calm server is read.
const MOST_RESTS: usize = 20;

/// Follows when a main thread is at rest: sleeps in its event loop because there is nothing that it could read or
/// answer. Only what the kernel says at a reading counts: time that a thread did not use says nothing, because it also
/// sleeps elsewhere, however shortly: for a disk, for a page, for a lock.
#[derive(Clone, Debug, Default)]
pub struct Rest {
    read: Option<ThreadReading>,
    /// The first reading since which it has not slept.
    awake_since: Option<ThreadReading>,
    /// Its time waiting for a CPU, as it was last returned.
    waiting_ns: u64,
    rests: VecDeque<Duration>,
}

impl Rest {
    /// Takes in a reading. Returns the thread's times.
    ///
    /// The kernel counts the time that a thread has waited for a CPU only when it gets one. A thread that has not slept
    /// has waited whenever it did not run, so the time of a wait under way is added here.
    pub fn follow(&mut self, now: ThreadReading) -> ThreadTimes {
        let before = self.read.replace(now);
        let is_awake = |before: &ThreadReading| {
            let has_slept = now.sleeps.is_none() || now.sleeps != before.sleeps;
            !has_slept && now.is_resting.is_none() && before.is_resting.is_none()
        };
        match before {
            Some(before) if is_awake(&before) => {
                self.awake_since.get_or_insert(before);
            }
            _ => self.awake_since = None,
        }
        let mut times = now.times;
        if let Some(since) = self.awake_since {
            let elapsed = now.at.saturating_sub(since.at + TICK).as_nanos() as u64;
            let ran = times.cpu_ns.saturating_sub(since.times.cpu_ns);
            times.waiting_ns = times.waiting_ns.max(since.times.waiting_ns + elapsed.saturating_sub(ran));
        }
        self.waiting_ns = self.waiting_ns.max(times.waiting_ns);
        times.waiting_ns = self.waiting_ns;
        if now.is_resting == Some(true) {
            self.rests.push_back(now.at);
            if self.rests.len() > MOST_RESTS {
                self.rests.pop_front();
            }
        }
        times
    }

    /// Returns the last readings at which it was at rest, oldest first.
    pub fn rests(&self) -> Vec<Duration> {
        self.rests.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Rest, ThreadReading};
    use crate::ThreadTimes;

    /// A reading: its time, CPU time and time waiting for a CPU until then, in milliseconds; whether the thread rests,
    /// and how often it has slept.
    type Read = (u64, u64, u64, Option<bool>, Option<u64>);

    /// Returns how long the thread has waited for a CPU after these readings, and when it last rested, in milliseconds.
    fn follow(readings: &[Read]) -> (u64, Option<u128>) {
        let mut rest = Rest::default();
        let times = readings.iter().map(|(at, cpu, waiting, is_resting, sleeps)| {
            rest.follow(ThreadReading {
                at: Duration::from_millis(*at),
                times: ThreadTimes { cpu_ns: cpu * 1_000_000, waiting_ns: waiting * 1_000_000 },
                is_resting: *is_resting,
                sleeps: *sleeps,
            })
        });
        (times.last().map_or(0, |times| times.waiting_ns / 1_000_000), rest.rests().last().map(Duration::as_millis))
    }

    #[test]
    fn a_thread_rests_only_when_it_is_seen_to() {
        for (readings, rested) in [
            (&[(100, 0, 0, Some(true), None)][..], Some(100)),
            (&[(100, 0, 0, Some(true), None), (200, 100, 0, None, None)], Some(100)),
            // It waits for a disk again and again, for less than a tick.
            (&[(100, 0, 0, None, Some(5)), (200, 60, 0, None, Some(26))], None),
            // It sleeps elsewhere.
            (&[(100, 0, 0, Some(false), None), (200, 0, 0, Some(false), None), (300, 60, 0, None, Some(1))], None),
            (&[(100, 0, 0, None, Some(1)), (200, 0, 0, Some(false), None)], None),
        ] {
            assert_eq!(follow(readings).1, rested, "{readings:?}");
        }
    }

    #[test]
    fn a_thread_that_did_not_sleep_has_waited_for_a_cpu() {
        let mut readings = vec![
            (0, 0, 7, Some(true), None),
            (100, 50, 7, None, Some(1)),
            (200, 100, 7, None, Some(1)),
            (300, 100, 7, None, Some(1)),
            (400, 100, 7, None, Some(1)),
        ];
        assert_eq!(follow(&readings), (247, Some(0)), "to a tick, 10 ms");
        // It runs again, and the kernel counts the wait.
        readings.push((450, 110, 297, None, Some(1)));
        assert_eq!(follow(&readings), (297, Some(0)));
        // It rests, and the wait was counted once.
        readings.push((500, 120, 297, Some(true), None));
        assert_eq!(follow(&readings), (297, Some(500)));
    }
}
