use std::time::Duration;

use super::{MainThread, Spent, TICK_NS, Work};
use crate::ThreadTimes;

const MS: u64 = 1_000_000;

/// A reading: time, CPU time, time in evicting calls, in expire cycles, and observed, all in milliseconds, and evicted
/// keys.
type Reading = (u64, u64, u64, u64, u64, Option<u64>);

fn after(readings: &[Reading]) -> MainThread {
    let mut thread = MainThread::default();
    for (at, cpu, evicting, expiring, observed, evicted_keys) in readings {
        thread.advance(Spent {
            at: Duration::from_millis(*at),
            times: ThreadTimes { cpu_ns: cpu * MS, waiting_ns: 2 * at * MS },
            work: Work::All,
            evicting_ns: evicting * MS,
            evicted_keys: *evicted_keys,
            observed: Duration::from_millis(*observed),
            expiring_ns: expiring * MS,
            throttled: None,
        });
    }
    thread
}

/// Returns eviction, other and unobserved CPU time after readings.
fn split(readings: &[(u64, u64, u64, u64)]) -> [u64; 3] {
    let readings = readings.iter();
    let readings = readings.map(|(at, cpu, evicting, observed)| (*at, *cpu, *evicting, 0, *observed, None));
    let thread = after(&readings.collect::<Vec<Reading>>());
    [thread.eviction_ns, thread.other_ns, thread.unobserved_ns].map(|ns| ns / MS)
}

#[test]
fn what_is_no_eviction_is_something_else() {
    assert_eq!(split(&[(0, 500, 40, 0)]), [0, 0, 0], "from the first reading on");
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
    let mut readings: Vec<Reading> = vec![(0, 0, 0, 0, 0, Some(0))];
    for second in 0..10 {
        let begin = 1_000 * second;
        let keys = |part| Some(10 * second + part);
        let (seen, evicted) = (100 * (second + 1), 50 * (second + 1));
        readings.push((begin + 100, begin + 100, evicted, 0, seen, keys(1)));
        readings.push((begin + 1_000, begin + 1_000, evicted, 0, seen, keys(10)));
    }
    let both = |thread: &MainThread| [thread.all_eviction_ns(), thread.all_other_ns()];
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
    // Everything is observed for a minute without evictions, then a fiftieth of a burst, of which evictions take half.
    let calm = (0..=60).map(|second| (1_000 * second, 900 * second, 0, 0, 1_000 * second, Some(0)));
    let mut readings: Vec<Reading> = calm.collect();
    for tenth in 1..=100 {
        let seen = 60_000 + 2 * tenth;
        for (ms, keys) in [(2, 1), (100, 2)] {
            let since = 100 * (tenth - 1) + ms;
            let keys = Some(2 * tenth + keys);
            readings.push((60_000 + since, 54_000 + since, tenth, 0, seen, keys));
        }
    }
    assert_eq!(after(&readings).all_eviction_ns(), 5_000 * MS);
}

/// Returns eviction, expire and other CPU time after readings: time, CPU time, time in evicting calls, in expire
/// cycles, and observed, all in milliseconds.
fn three(readings: &[(u64, u64, u64, u64, u64)]) -> [u64; 3] {
    let readings = readings.iter();
    let readings =
        readings.map(|(at, cpu, evicting, expiring, observed)| (*at, *cpu, *evicting, *expiring, *observed, None));
    let thread = after(&readings.collect::<Vec<Reading>>());
    let (eviction, other) = (thread.all_eviction_ns(), thread.all_other_ns());
    [eviction, thread.expire_ns(), other].map(|ns| ns / MS)
}

#[test]
fn expire_cycles_are_told_from_the_rest() {
    assert_eq!(three(&[(0, 9, 1, 9, 0), (100, 9, 1, 9, 100)]), [0; 3]);
    let both = [(0, 0, 0, 0, 0), (100, 80, 30, 25, 100)];
    assert_eq!(three(&both), [30, 25, 25]);
    // While evicting calls are not observed, cycles are.
    let blind = [(0, 0, 0, 0, 0), (100, 80, 0, 25, 0)];
    assert_eq!(three(&blind), [0, 25, 55]);
    // CPU time that shows late is not lost.
    let late = [(0, 0, 0, 0, 0), (20, 14, 0, 20, 20), (40, 40, 0, 20, 40)];
    assert_eq!(three(&late), [0, 20, 20]);
}

#[test]
fn no_time_is_counted_twice() {
    // A call of 60 ms inside a cycle of 80 ms.
    let nested = [(0, 0, 0, 0, 0), (100, 90, 60, 80, 100)];
    assert_eq!(three(&nested), [60, 30, 0]);
}

/// Returns the time spinning, the time of which that is not known, and the rest, after readings of time, CPU time and
/// work, in milliseconds.
fn spun(readings: &[(u64, u64, Work)]) -> [u64; 3] {
    spun_waiting(readings, 0)
}

/// Does the same for a thread that waits so many times as long as it runs.
fn spun_waiting(readings: &[(u64, u64, Work)], waiting: u64) -> [u64; 3] {
    let mut thread = MainThread::default();
    for (at, cpu, work) in readings {
        thread.advance(Spent {
            at: Duration::from_millis(*at),
            times: ThreadTimes { cpu_ns: cpu * MS, waiting_ns: waiting * cpu * MS },
            work: *work,
            evicting_ns: 0,
            evicted_keys: None,
            observed: Duration::from_millis(*at),
            expiring_ns: 0,
            throttled: None,
        });
    }
    [thread.spin_ns(), thread.unknown_ns(), thread.all_other_ns()].map(|ns| ns / MS)
}

#[test]
fn what_the_server_does_not_count_as_active_time_is_spinning() {
    let active = |ms: u64| Work::Active(ms * 1_000);
    let spinning = [(0, 0, active(0)), (1_000, 990, active(180)), (2_000, 1_980, active(360))];
    assert_eq!(spun(&spinning), [1_620, 0, 360]);
    // A command that takes long is counted at its end; until then it is neither.
    let long = [(0, 0, active(0)), (1_000, 1_000, active(0)), (2_000, 2_000, active(0))];
    assert_eq!(spun(&long), [0, 0, 0]);
    let ended = [&long[..], &[(2_100, 2_100, active(2_100))]].concat();
    assert_eq!(spun(&ended), [0, 0, 2_100]);
    // On a CPU for a quarter of the time in which it wanted one, and active for half of that time.
    let waiting = spun_waiting(&[(0, 0, active(0)), (1_000, 200, active(400))], 3);
    assert_eq!(waiting, [100, 0, 100]);
    // CONFIG RESETSTAT.
    let reset = [(0, 0, active(5_000)), (100, 50, active(1)), (200, 100, active(51))];
    assert_eq!(spun(&reset), [50, 0, 50]);
}

#[test]
fn without_such_an_account_it_is_not_known_what_io_threads_make_of_it() {
    let (all, unknown) = (Work::All, Work::Unknown);
    let told = [(0, 0, all), (1_000, 400, all), (2_000, 1_300, unknown), (3_000, 1_400, all)];
    assert_eq!(spun(&told), [0, 900, 500]);
}
