//! The CPU time of a main thread by what it does.
//!
//! No evicting call is made inside an expire cycle, and no cycle inside an evicting call: eviction calls come from
//! `processCommand()` and from a timer, cycles from the cron and before the event loop sleeps. Only a module that lets
//! clients run (`RedisModule_Yield`) while it is told of an expired key could nest them. Even then, no time is counted
//! twice: time that counts as an eviction's never counts as an expire cycle's.

use std::time::Duration;

use evictscope_model::Member;

use crate::{MemberValues, ThreadTimes};

/// The kernel updates a thread's CPU time when the thread is switched out and at each tick (10 ms at most), so this
/// much of the time in evicting calls may show as CPU time only later.
const TICK_NS: u64 = 10_000_000;
/// The time over which the thread's load is measured: the time constant of an exponential mean.
const BUSY_OVER: f64 = 0.2;

/// The time over which the share of evicting calls is measured, to estimate what they take while they are not observed:
/// a sampled server is observed twice a second, for some milliseconds each time.
const SHARE_OVER: f64 = 5.0;

/// Whether a main thread's CPU time is work. Where it has io-threads it may spin until they have read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkAccount {
    /// All of it: there are no other threads that it could spin for.
    #[default]
    All,
    /// As much as the server's own account of active time, which has reached so many microseconds. It is brought up to
    /// date at the end of each turn of the event loop.
    Active(u64),
    /// The server keeps no such account.
    Unknown,
}

impl WorkAccount {
    /// Returns what the members say. The directive io-threads is found wherever any is.
    pub(super) fn of(members: &MemberValues) -> Self {
        match members.get(Member::IoThreadsNum) {
            None | Some(0 | 1) => Self::All,
            Some(_) => (members.get(Member::StatActiveTime)).map_or(Self::Unknown, Self::Active),
        }
    }
}

/// What the main thread has spent its time on until one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent {
    pub at: Duration,
    pub times: ThreadTimes,
    /// What of its CPU time was work.
    pub work: WorkAccount,
    /// The time in evicting calls, without waits for a CPU, nanoseconds.
    pub evicting_ns: u64,
    pub evicted_keys: Option<u64>,
    /// For how long evicting calls were observed.
    pub observed: Duration,
    /// The time in expire cycles, likewise; they are observed all the time.
    pub expiring_ns: u64,
    /// For how long its CPU quotas were used up.
    pub throttled: Option<Duration>,
}

/// The CPU time of a main thread since the server was found, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MainThreadTime {
    pub eviction_ns: u64,
    /// Elsewhere, including expire cycles, while evicting calls were observed.
    pub other_ns: u64,
    /// While evicting calls were not observed.
    pub unobserved_ns: u64,
    /// What evicting calls took of that, estimated from their share while they were observed.
    pub(super) estimated_ns: u64,
    pub expire_ns: u64,
    /// Spinning for io-threads.
    pub spin_ns: u64,
    /// Not known yet whether spinning: the server's account has not grown since.
    undecided_ns: u64,
    /// How long it wanted a CPU meanwhile.
    undecided_waiting_ns: u64,
    /// Elsewhere, while it was not known whether that was work.
    pub unknown_ns: u64,
    /// Recent CPU time inside evicting calls, and all that was observed, while keys were evicted.
    recent: [f64; 2],
    /// Time in which it was ready to run but had no CPU.
    pub waiting_ns: u64,
    /// For how long its CPU quotas were used up; `None` if it has none.
    pub throttled: Option<Duration>,
    last: Option<Spent>,
    /// Share of recent time for which it had work.
    pub(super) busy: f64,
    /// Time in evicting calls that has not shown as CPU time yet.
    owed_ns: u64,
    /// The same for expire cycles.
    owed_expire_ns: u64,
}

impl MainThreadTime {
    pub(super) fn advance(&mut self, now: Spent) {
        let Some(last) = self.last.replace(now) else { return };
        let cpu_ns = now.times.cpu_ns.saturating_sub(last.times.cpu_ns);
        let waiting_ns = now.times.waiting_ns.saturating_sub(last.times.waiting_ns);
        self.waiting_ns += waiting_ns;
        if let Some((now, last)) = now.throttled.zip(last.throttled) {
            let throttled = self.throttled.get_or_insert_default();
            *throttled += now.saturating_sub(last);
        }
        let elapsed = now.at.saturating_sub(last.at).as_secs_f64();
        if elapsed > 0.0 {
            let work_ns = cpu_ns + waiting_ns;
            let share = (work_ns as f64 / 1e9 / elapsed).min(1.0);
            self.busy += (share - self.busy) * (elapsed / BUSY_OVER).min(1.0);
        }
        let seen = now.observed.saturating_sub(last.observed);
        let seen = if elapsed > 0.0 { (seen.as_secs_f64() / elapsed).min(1.0) } else { 1.0 };
        let observed_ns = (cpu_ns as f64 * seen).round() as u64;
        let eviction_ns = shown(&mut self.owed_ns, now.evicting_ns.saturating_sub(last.evicting_ns), observed_ns);
        self.eviction_ns += eviction_ns;
        self.other_ns += observed_ns - eviction_ns;
        let remembered = (1.0 - elapsed / SHARE_OVER).max(0.0);
        self.recent = self.recent.map(|ns| ns * remembered);
        let unobserved_ns = cpu_ns.saturating_sub(observed_ns);
        self.unobserved_ns += unobserved_ns;
        // If no key was evicted meanwhile, no call took long. Nor does such a time tell what calls take while keys are
        // evicted: a busy server's time before a burst would outweigh the little of the burst that is observed.
        let is_evicting = now.evicted_keys.is_none() || now.evicted_keys != last.evicted_keys;
        if is_evicting {
            self.recent[0] += eviction_ns as f64;
            self.recent[1] += observed_ns as f64;
        }
        let [evicting, observed] = self.recent;
        let estimated_ns = if is_evicting && observed > 0.0 {
            (unobserved_ns as f64 * (evicting / observed)).round() as u64
        } else {
            0
        };
        self.estimated_ns += estimated_ns;
        let expiring_ns = now.expiring_ns.saturating_sub(last.expiring_ns);
        let rest_ns = cpu_ns.saturating_sub(eviction_ns + estimated_ns);
        let expire_ns = shown(&mut self.owed_expire_ns, expiring_ns, rest_ns);
        self.expire_ns += expire_ns;
        match (now.work, last.work) {
            (WorkAccount::All, _) => {}
            (WorkAccount::Active(now), WorkAccount::Active(last)) => {
                self.undecided_ns += cpu_ns;
                self.undecided_waiting_ns += waiting_ns;
                if now != last {
                    // Active time is wall time: it waited for a CPU in it as in the rest.
                    let active_ns = now.saturating_sub(last).saturating_mul(1_000) as f64;
                    let wanted_ns = (self.undecided_ns + self.undecided_waiting_ns).max(1) as f64;
                    let active = (active_ns / wanted_ns).min(1.0);
                    self.spin_ns += (self.undecided_ns as f64 * (1.0 - active)).round() as u64;
                    (self.undecided_ns, self.undecided_waiting_ns) = (0, 0);
                }
            }
            _ => self.unknown_ns += rest_ns - expire_ns,
        }
    }

    /// Returns the CPU time in which it is not known to have worked.
    pub(crate) fn no_work_ns(&self) -> u64 {
        self.spin_ns + self.undecided_ns + self.unknown_ns
    }

    /// Returns whether it is known now what of its CPU time is work.
    pub(crate) fn tells_work(&self) -> bool {
        self.last.is_none_or(|last| last.work != WorkAccount::Unknown)
    }

    /// Returns the CPU time inside evicting calls, including an estimate of what they took while they were not
    /// observed.
    pub fn all_eviction_ns(&self) -> u64 {
        self.eviction_ns + self.estimated_ns
    }

    pub fn all_other_ns(&self) -> u64 {
        let known = self.estimated_ns + self.expire_ns + self.unknown_ns;
        (self.other_ns + self.unobserved_ns).saturating_sub(known + self.spin_ns + self.undecided_ns)
    }

    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }
}

/// Returns how much of the wall time in calls shows as CPU time; some of it is owed from before.
fn shown(owed_ns: &mut u64, wall_ns: u64, cpu_ns: u64) -> u64 {
    let all_ns = *owed_ns + wall_ns;
    let shown_ns = all_ns.min(cpu_ns);
    // Any more was wall time in which the thread had no CPU.
    *owed_ns = (all_ns - shown_ns).min(TICK_NS);
    shown_ns
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{MainThreadTime, Spent, TICK_NS, WorkAccount};
    use crate::ThreadTimes;

    const MS: u64 = 1_000_000;

    /// A reading: time, CPU time, time in evicting calls, in expire cycles, and observed, all in milliseconds, and
    /// evicted keys.
    type Reading = (u64, u64, u64, u64, u64, Option<u64>);

    /// What a thread that waits twice as long as time passes has spent at a reading.
    fn spent(&(at, cpu, evicting, expiring, observed, evicted_keys): &Reading) -> Spent {
        Spent {
            at: Duration::from_millis(at),
            times: ThreadTimes { cpu_ns: cpu * MS, waiting_ns: 2 * at * MS },
            work: WorkAccount::All,
            evicting_ns: evicting * MS,
            evicted_keys,
            observed: Duration::from_millis(observed),
            expiring_ns: expiring * MS,
            throttled: None,
        }
    }

    fn after(readings: impl IntoIterator<Item = Spent>) -> MainThreadTime {
        let mut thread = MainThreadTime::default();
        readings.into_iter().for_each(|spent| thread.advance(spent));
        thread
    }

    #[test]
    fn time_is_told_apart_by_what_it_was_spent_on() {
        // Readings as above without keys; then time in evicting calls, in expire cycles, outside evicting calls while
        // these were observed, while they were not, and what is neither.
        for (readings, expected) in [
            // From the first reading on.
            (&[(0, 500, 40, 9, 0)][..], [0; 5]),
            (&[(0, 9, 1, 9, 0), (100, 9, 1, 9, 100)], [0; 5]),
            (&[(0, 0, 0, 0, 0), (100, 80, 30, 25, 100)], [30, 25, 50, 0, 25]),
            // CPU time that shows late is not lost.
            (&[(0, 0, 0, 0, 0), (20, 14, 20, 0, 20), (40, 40, 40, 0, 40)], [40, 0, 0, 0, 0]),
            (&[(0, 0, 0, 0, 0), (20, 14, 0, 20, 20), (40, 40, 0, 20, 40)], [0, 20, 40, 0, 20]),
            // But a call in which the thread had no CPU was no CPU time.
            (&[(0, 0, 0, 0, 0), (100, 0, 100, 0, 100), (200, 100, 100, 0, 200)], [TICK_NS / MS, 0, 90, 0, 90]),
            // Of what was not observed, evicting calls have the share that was seen.
            (&[(0, 0, 0, 0, 0), (100, 80, 10, 0, 50), (200, 160, 10, 0, 50)], [10, 0, 30, 120, 120]),
            (&[(0, 0, 0, 0, 0), (100, 80, 0, 25, 0)], [0, 25, 0, 80, 55]),
            // No time is counted twice: a call of 60 ms inside a cycle of 80 ms.
            (&[(0, 0, 0, 0, 0), (100, 90, 60, 80, 100)], [60, 30, 30, 0, 0]),
        ] {
            let with_keys = readings.iter().map(|(at, cpu, evicting, expiring, observed)| {
                spent(&(*at, *cpu, *evicting, *expiring, *observed, None))
            });
            let thread = after(with_keys);
            let MainThreadTime { eviction_ns, expire_ns, other_ns, unobserved_ns, .. } = thread;
            let parts = [eviction_ns, expire_ns, other_ns, unobserved_ns, thread.all_other_ns()];
            assert_eq!(parts.map(|ns| ns / MS), expected, "{readings:?}");
        }
    }

    #[test]
    fn what_was_not_observed_has_the_share_that_was_seen_while_keys_are_evicted() {
        // Observed for a tenth of each second, of which evictions take half.
        let mut readings: Vec<Reading> = vec![(0, 0, 0, 0, 0, Some(0))];
        for second in 0..10 {
            let begin = 1_000 * second;
            let keys = |part| Some(10 * second + part);
            let (seen, evicted) = (100 * (second + 1), 50 * (second + 1));
            readings.push((begin + 100, begin + 100, evicted, 0, seen, keys(1)));
            readings.push((begin + 1_000, begin + 1_000, evicted, 0, seen, keys(10)));
        }
        let both = |thread: &MainThreadTime| [thread.all_eviction_ns(), thread.all_other_ns()];
        let after = |readings: &[Reading]| after(readings.iter().map(spent));
        let thread = after(&readings);
        assert_eq!(both(&thread), [5_000 * MS, 5_000 * MS]);
        assert_eq!(thread.waiting_ns, 20_000 * MS);
        // Then it is busy with something else.
        readings.push((11_000, 11_000, 500, 0, 1_000, Some(100)));
        assert_eq!(both(&after(&readings)), [5_000 * MS, 6_000 * MS]);
        // If keys are not known, the share still applies.
        readings.push((12_000, 12_000, 500, 0, 1_000, None));
        assert_eq!(both(&after(&readings)), [5_500 * MS, 6_500 * MS]);
    }

    #[test]
    fn a_burst_has_the_share_of_its_own_calls_however_busy_the_server_was_before() {
        // Everything is observed for a minute without evictions, then a fiftieth of a burst, of which evictions take
        // half.
        let calm = (0..=60).map(|second| (1_000 * second, 900 * second, 0, 0, 1_000 * second, Some(0)));
        let mut readings: Vec<Reading> = calm.collect();
        for tenth in 1..=100 {
            let seen = 60_000 + 2 * tenth;
            for (ms, keys) in [(2, 1), (100, 2)] {
                let since = 100 * (tenth - 1) + ms;
                readings.push((60_000 + since, 54_000 + since, tenth, 0, seen, Some(2 * tenth + keys)));
            }
        }
        assert_eq!(after(readings.iter().map(spent)).all_eviction_ns(), 5_000 * MS);
    }

    /// Returns the time spinning, the time of which that is not known, and the rest, after readings of time, CPU time
    /// and work, in milliseconds, of a thread that waits so many times as long as it runs.
    fn spun(readings: &[(u64, u64, WorkAccount)], waiting: u64) -> [u64; 3] {
        let spent = |(at, cpu, work): &(u64, u64, WorkAccount)| {
            let spent = spent(&(*at, *cpu, 0, 0, *at, None));
            Spent { times: ThreadTimes { waiting_ns: waiting * cpu * MS, ..spent.times }, work: *work, ..spent }
        };
        let thread = after(readings.iter().map(spent));
        [thread.spin_ns, thread.unknown_ns, thread.all_other_ns()].map(|ns| ns / MS)
    }

    #[test]
    fn what_the_server_does_not_count_as_active_time_is_spinning() {
        let active = |ms: u64| WorkAccount::Active(ms * 1_000);
        let spinning = [(0, 0, active(0)), (1_000, 990, active(180)), (2_000, 1_980, active(360))];
        assert_eq!(spun(&spinning, 0), [1_620, 0, 360]);
        // A command that takes long is counted at its end; until then it is neither.
        let long = [(0, 0, active(0)), (1_000, 1_000, active(0)), (2_000, 2_000, active(0))];
        assert_eq!(spun(&long, 0), [0, 0, 0]);
        assert_eq!(spun(&[&long[..], &[(2_100, 2_100, active(2_100))]].concat(), 0), [0, 0, 2_100]);
        // On a CPU for a quarter of the time in which it wanted one, and active for half of that time.
        assert_eq!(spun(&[(0, 0, active(0)), (1_000, 200, active(400))], 3), [100, 0, 100]);
        // CONFIG RESETSTAT.
        let reset = [(0, 0, active(5_000)), (100, 50, active(1)), (200, 100, active(51))];
        assert_eq!(spun(&reset, 0), [50, 0, 50]);
    }

    #[test]
    fn without_such_an_account_it_is_not_known_what_io_threads_make_of_it() {
        let (all, unknown) = (WorkAccount::All, WorkAccount::Unknown);
        let readings = [(0, 0, all), (1_000, 400, all), (2_000, 1_300, unknown), (3_000, 1_400, all)];
        assert_eq!(spun(&readings, 0), [0, 900, 500]);
    }
}
