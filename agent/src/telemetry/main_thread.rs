//! The CPU time of a main thread by what it does.

use std::time::Duration;

use super::ThreadTimes;

/// The kernel brings a thread's CPU time up to date when it is switched out and at each tick (10 ms at most), so
/// so much of the time in evicting calls may show as CPU time only later.
const TICK_NS: u64 = 10_000_000;
/// The time over which it is measured how busy the thread is: the time constant of an exponential mean.
const BUSY_OVER: f64 = 0.2;

/// The time over which the share of evicting calls is measured, for the time in which they are not observed: a
/// server that is sampled is observed twice a second, each time for some milliseconds.
const SHARE_OVER: f64 = 5.0;

/// What is known of evicting calls at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evictions {
    /// The wall time that they have taken, nanoseconds.
    pub ns: u64,
    /// The server's own counter of evicted keys.
    pub keys: Option<u64>,
    /// For how long they were observed.
    pub observed: Duration,
}

/// The CPU time of a main thread since the server was found, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MainThread {
    /// Inside evicting calls.
    pub eviction_ns: u64,
    /// Elsewhere, while evicting calls were observed.
    pub other_ns: u64,
    /// While they were not observed.
    pub unobserved_ns: u64,
    /// Of that, what evicting calls took, by the share that they had while they were observed.
    estimated_ns: u64,
    /// CPU time inside evicting calls of late, and all that was observed.
    recent: [f64; 2],
    /// Time in which it was ready to run but had no CPU.
    pub waiting_ns: u64,
    last: Option<Last>,
    /// Share of the time in which it had work.
    busy: f64,
    /// Time in evicting calls that has not shown as CPU time yet.
    owed_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    at: Duration,
    times: ThreadTimes,
    evictions: Evictions,
}

impl MainThread {
    /// Takes in a reading at `at`.
    pub(super) fn advance(&mut self, at: Duration, times: ThreadTimes, evictions: Evictions) {
        let now = Last {
            at,
            times,
            evictions,
        };
        let Some(last) = self.last.replace(now) else {
            return;
        };
        let cpu_ns = times.cpu_ns.saturating_sub(last.times.cpu_ns);
        let waiting_ns = times.waiting_ns.saturating_sub(last.times.waiting_ns);
        self.waiting_ns += waiting_ns;
        let elapsed = now.at.saturating_sub(last.at).as_secs_f64();
        if elapsed > 0.0 {
            let work_ns = cpu_ns + waiting_ns;
            let share = (work_ns as f64 / 1e9 / elapsed).min(1.0);
            self.busy += (share - self.busy) * (elapsed / BUSY_OVER).min(1.0);
        }
        let seen = evictions.observed.saturating_sub(last.evictions.observed);
        let seen = match elapsed > 0.0 {
            true => (seen.as_secs_f64() / elapsed).min(1.0),
            false => 1.0,
        };
        let observed_ns = (cpu_ns as f64 * seen).round() as u64;
        self.owed_ns += evictions.ns.saturating_sub(last.evictions.ns);
        let eviction_ns = self.owed_ns.min(observed_ns);
        // What is more was wall time in which the thread had no CPU.
        self.owed_ns = (self.owed_ns - eviction_ns).min(TICK_NS);
        self.eviction_ns += eviction_ns;
        self.other_ns += observed_ns - eviction_ns;
        let remembered = (1.0 - elapsed / SHARE_OVER).max(0.0);
        let [evicting, observed] = [eviction_ns, observed_ns].map(|ns| ns as f64);
        self.recent[0] = self.recent[0] * remembered + evicting;
        self.recent[1] = self.recent[1] * remembered + observed;
        let unobserved_ns = cpu_ns.saturating_sub(observed_ns);
        self.unobserved_ns += unobserved_ns;
        // Where no key was evicted meanwhile, no call took long.
        let [evicting, observed] = self.recent;
        let is_evicting = evictions.keys.is_none() || evictions.keys != last.evictions.keys;
        if is_evicting && observed > 0.0 {
            self.estimated_ns += (unobserved_ns as f64 * (evicting / observed)).round() as u64;
        }
    }

    /// Returns the CPU time inside evicting calls, with an estimate of what they took while they were not observed.
    pub fn all_eviction_ns(&self) -> u64 {
        self.eviction_ns + self.estimated_ns
    }

    /// Returns the rest of the CPU time.
    pub fn all_other_ns(&self) -> u64 {
        self.other_ns + (self.unobserved_ns - self.estimated_ns)
    }

    /// Returns the share of the time in which it has work of late.
    pub fn busy(&self) -> f64 {
        self.busy
    }

    /// Tells whether it was ever read.
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Evictions, MainThread, TICK_NS};
    use crate::telemetry::ThreadTimes;

    const MS: u64 = 1_000_000;

    /// A reading: time, CPU time, time in evicting calls, time observed, all in milliseconds, and evicted keys.
    type Reading = (u64, u64, u64, u64, Option<u64>);

    fn after(readings: &[Reading]) -> MainThread {
        let mut thread = MainThread::default();
        for (at, cpu, evicting, observed, keys) in readings {
            let times = ThreadTimes {
                cpu_ns: cpu * MS,
                waiting_ns: 2 * at * MS,
            };
            let evictions = Evictions {
                ns: evicting * MS,
                keys: *keys,
                observed: Duration::from_millis(*observed),
            };
            thread.advance(Duration::from_millis(*at), times, evictions);
        }
        thread
    }

    /// Returns eviction, other and unobserved CPU time after readings.
    fn split(readings: &[(u64, u64, u64, u64)]) -> [u64; 3] {
        let readings = readings.iter();
        let readings =
            readings.map(|(at, cpu, evicting, observed)| (*at, *cpu, *evicting, *observed, None));
        let thread = after(&readings.collect::<Vec<Reading>>());
        [thread.eviction_ns, thread.other_ns, thread.unobserved_ns].map(|ns| ns / MS)
    }

    #[test]
    fn what_is_no_eviction_is_something_else() {
        assert_eq!(
            split(&[(0, 500, 40, 0)]),
            [0, 0, 0],
            "from the first reading on"
        );
        assert_eq!(split(&[(0, 0, 0, 0), (100, 80, 30, 100)]), [30, 50, 0]);
    }

    #[test]
    fn cpu_time_that_shows_late_is_not_lost() {
        let late = [(0, 0, 0, 0), (20, 14, 20, 20), (40, 40, 40, 40)];
        assert_eq!(split(&late), [40, 0, 0]);
        // But a call in which the thread had no CPU was no CPU time.
        let without_cpu = [(0, 0, 0, 0), (100, 0, 100, 100), (200, 100, 100, 200)];
        assert_eq!(split(&without_cpu), [TICK_NS / MS, 90, 0]);
    }

    #[test]
    fn what_was_not_observed_is_neither() {
        let half = [(0, 0, 0, 0), (100, 80, 10, 50), (200, 160, 10, 50)];
        assert_eq!(split(&half), [10, 30, 120]);
    }

    #[test]
    fn what_was_not_observed_has_the_share_that_was_seen_while_keys_are_evicted() {
        // Observed for a tenth of each second, of which evictions take half.
        let mut readings: Vec<Reading> = vec![(0, 0, 0, 0, Some(0))];
        for second in 0..10 {
            let begin = 1_000 * second;
            let keys = |part| Some(10 * second + part);
            let (seen, evicted) = (100 * (second + 1), 50 * (second + 1));
            readings.push((begin + 100, begin + 100, evicted, seen, keys(1)));
            readings.push((begin + 1_000, begin + 1_000, evicted, seen, keys(10)));
        }
        let both = |thread: &MainThread| [thread.all_eviction_ns(), thread.all_other_ns()];
        let thread = after(&readings);
        assert_eq!(both(&thread), [5_000 * MS, 5_000 * MS]);
        assert_eq!(thread.waiting_ns, 20_000 * MS);
        // Then it is busy with something else.
        readings.push((11_000, 11_000, 500, 1_000, Some(100)));
        assert_eq!(both(&after(&readings)), [5_000 * MS, 6_000 * MS]);
        // Where keys are not known, the share tells all the same.
        readings.push((12_000, 12_000, 500, 1_000, None));
        assert_eq!(both(&after(&readings)), [5_500 * MS, 6_500 * MS]);
    }
}
