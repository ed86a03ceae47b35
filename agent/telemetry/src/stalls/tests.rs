use std::time::Duration;

use proptest::prelude::*;

use super::{Reading, StallCause, Stalls, TENTH};
use crate::ThreadTimes;

const MS: u64 = 1_000_000;

/// A main thread, in steps of a millisecond.
struct Thread {
    stalls: Stalls,
    now: Reading,
    /// The kernel's clock ticks this often, milliseconds: CPU time shows then.
    tick: u64,
    cpu_ns: u64,
}

/// What it does in each millisecond, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Doing {
    cpu: u64,
    waiting: u64,
    evicting: u64,
    expiring: u64,
}

const IDLE: Doing = Doing {
    cpu: 50,
    waiting: 0,
    evicting: 0,
    expiring: 0,
};
const BUSY: Doing = Doing { cpu: 1_000, ..IDLE };
const STALLED: Doing = Doing {
    evicting: 600,
    ..BUSY
};

impl Thread {
    fn new() -> Self {
        Self {
            stalls: Stalls::new(),
            now: Reading {
                at: Duration::from_secs(5),
                times: ThreadTimes {
                    cpu_ns: 0,
                    waiting_ns: 0,
                },
                evicting_ns: 0,
                evicting_since: None,
                expiring_ns: 0,
                expiring_since: None,
                observed: Duration::ZERO,
                evicted_keys: None,
            },
            tick: 4,
            cpu_ns: 0,
        }
    }

    /// Goes on for some milliseconds, read each time so many have passed.
    fn goes_on(&mut self, doing: Doing, milliseconds: u64, every: u64) {
        for step in 1..=milliseconds {
            let now = &mut self.now;
            now.at += Duration::from_millis(1);
            now.observed += Duration::from_millis(1);
            self.cpu_ns += doing.cpu * 1_000;
            now.times.waiting_ns += doing.waiting * 1_000;
            now.evicting_ns += doing.evicting * 1_000;
            now.expiring_ns += doing.expiring * 1_000;
            let is_tick = (now.at.as_millis() as u64).is_multiple_of(self.tick);
            if is_tick || doing.cpu < 1_000 {
                now.times.cpu_ns = self.cpu_ns;
            }
            if step % every == 0 {
                self.stalls.advance(Some(self.now));
            }
        }
    }

    /// Makes one evicting call on a thread with nothing else to do.
    fn calls(&mut self, milliseconds: u64, every: u64) {
        self.now.evicting_since = Some(self.now.at);
        let call = Doing {
            evicting: 1_000,
            ..BUSY
        };
        self.goes_on(call, milliseconds, every);
        self.now.evicting_since = None;
    }

    fn stalled(&self) -> f64 {
        self.stalls.total(StallCause::Eviction).as_secs_f64()
    }
}

fn assert_between(stalled: f64, least: f64, most: f64) {
    let is_right = (least..=most).contains(&stalled);
    assert!(is_right, "{stalled} s of stalls, not {least} to {most}");
}

#[test]
fn a_server_that_evicts_without_end_on_a_full_core_is_stalled_all_the_time() {
    for tick in [1, 4, 10] {
        for every in [20, 37, 100] {
            let mut thread = Thread::new();
            thread.tick = tick;
            thread.goes_on(STALLED, 60_000, every);
            // The first and the last tenth are not judged.
            assert_between(thread.stalled(), 59.6, 60.0);
        }
    }
}

#[test]
fn a_burst_counts_while_it_goes_on() {
    let mut thread = Thread::new();
    thread.goes_on(IDLE, 10_000, 100);
    assert_eq!(thread.stalled(), 0.0);
    thread.goes_on(STALLED, 1_000, 20);
    assert_between(thread.stalled(), 0.7, 1.0);
    thread.goes_on(STALLED, 1_000, 20);
    assert_between(thread.stalled(), 1.7, 2.0);
    thread.goes_on(IDLE, 10_000, 20);
    assert_between(thread.stalled(), 1.7, 2.1);
}

#[test]
fn each_condition_is_needed() {
    let calm_cache = Doing {
        cpu: 500,
        evicting: 300,
        ..IDLE
    };
    let busy_with_other_work = Doing {
        evicting: 150,
        ..BUSY
    };
    let nearly_busy = Doing {
        cpu: 850,
        evicting: 600,
        ..IDLE
    };
    for doing in [IDLE, BUSY, calm_cache, busy_with_other_work, nearly_busy] {
        let mut thread = Thread::new();
        thread.goes_on(doing, 10_000, 20);
        assert_eq!(thread.stalled(), 0.0, "{doing:?}");
    }
}

#[test]
fn waiting_for_a_cpu_is_having_work() {
    let mut thread = Thread::new();
    let without_cpu = Doing {
        cpu: 400,
        waiting: 550,
        evicting: 300,
        expiring: 0,
    };
    thread.goes_on(without_cpu, 10_000, 20);
    assert_between(thread.stalled(), 9.7, 10.0);
}

#[test]
fn a_single_call_of_half_a_second_is_a_stall_of_half_a_second() {
    // It begins anywhere between two readings of a calm server, which is then read more often.
    for offset in [0, 30, 60, 99] {
        let mut thread = Thread::new();
        thread.goes_on(IDLE, 3_000, 100);
        thread.goes_on(IDLE, offset, u64::MAX);
        thread.now.evicting_since = Some(thread.now.at);
        let call = Doing {
            evicting: 1_000,
            ..BUSY
        };
        thread.goes_on(call, 100 - offset, 100 - offset);
        thread.goes_on(call, 300, 20);
        let so_far = (400 - offset) as f64 / 1e3;
        assert_between(thread.stalled(), so_far - 0.03, so_far);
        thread.goes_on(call, 100 + offset, 20);
        thread.now.evicting_since = None;
        thread.goes_on(IDLE, 3_000, 20);
        assert_between(thread.stalled(), 0.46, 0.51);
    }
}

#[test]
fn short_calls_of_an_idle_server_are_no_stall() {
    let mut thread = Thread::new();
    for _ in 0..100 {
        thread.calls(50, 20);
        thread.goes_on(IDLE, 150, 20);
    }
    assert_eq!(thread.stalled(), 0.0);
}

/// The end of a call that was not seen leaves it under way.
#[test]
fn a_call_that_an_idle_thread_seems_to_be_in_is_no_stall() {
    let mut thread = Thread::new();
    thread.now.evicting_since = Some(thread.now.at);
    let idle = Doing {
        evicting: 1_000,
        ..IDLE
    };
    thread.goes_on(idle, 5_000, 20);
    assert_eq!(thread.stalled(), 0.0);
}

#[test]
fn what_cannot_be_known_is_not_counted() {
    let mut thread = Thread::new();
    thread.goes_on(STALLED, 1_000, 20);
    let before = thread.stalled();
    // The thread's times cannot be read.
    for _ in 0..50 {
        thread.goes_on(STALLED, 20, u64::MAX);
        thread.stalls.advance(None);
    }
    assert_eq!(thread.stalled(), before);
    // The agent reads again after a while.
    thread.goes_on(STALLED, 3_000, 3_000);
    thread.goes_on(STALLED, 3_000, 3_000);
    assert_eq!(thread.stalled(), before);
}

/// Probes that are on for 10 ms of 500.
fn sampled(doing: Doing, keys: Option<u64>) -> f64 {
    let mut thread = Thread::new();
    thread.now.evicted_keys = keys.map(|_| 0);
    let mut goes_on = |is_on: bool, milliseconds| {
        let (evicting, observed) = (thread.now.evicting_ns, thread.now.observed);
        for _ in 0..milliseconds / 10 {
            thread.goes_on(doing, 10, u64::MAX);
            if !is_on {
                (thread.now.evicting_ns, thread.now.observed) = (evicting, observed);
            }
            let keys = keys.unwrap_or(0);
            thread.now.evicted_keys = thread.now.evicted_keys.map(|evicted| evicted + keys);
            thread.stalls.advance(Some(thread.now));
        }
    };
    for _ in 0..20 {
        goes_on(false, 490);
        goes_on(true, 10);
    }
    thread.stalled()
}

#[test]
fn while_the_probes_are_off_evicted_keys_tell() {
    // Of the first 0.5 s it is not known how long a key takes.
    assert_between(sampled(STALLED, Some(600)), 9.2, 9.6);
    let few = Doing {
        evicting: 100,
        ..BUSY
    };
    assert_eq!(sampled(few, Some(100)), 0.0);
    assert_eq!(sampled(STALLED, None), 0.0, "evicted keys are not known");
    assert_eq!(sampled(STALLED, Some(0)), 0.0, "calls that evict nothing");
    let idle = Doing {
        cpu: 700,
        ..STALLED
    };
    assert_eq!(sampled(idle, Some(600)), 0.0);
}

/// Returns for how long evictions and expire cycles have stalled a server that does this for ten seconds.
fn by_cause(doing: Doing) -> [f64; 2] {
    let mut thread = Thread::new();
    thread.goes_on(doing, 10_000, 20);
    [StallCause::Eviction, StallCause::Expire].map(|cause| thread.stalls.total(cause).as_secs_f64())
}

#[test]
fn a_stall_has_the_cause_that_took_more() {
    let taking = |evicting, expiring| Doing {
        evicting,
        expiring,
        ..BUSY
    };
    for (doing, stalled) in [
        (taking(0, 250), [false, true]),
        (taking(300, 250), [true, false]),
        (taking(250, 300), [false, true]),
        // Neither took a fifth.
        (taking(150, 150), [false, false]),
    ] {
        for (seconds, is_stalled) in by_cause(doing).into_iter().zip(stalled) {
            let expected = if is_stalled { 9.7..=10.0 } else { 0.0..=0.0 };
            assert!(expected.contains(&seconds), "{doing:?}: {seconds}");
        }
    }
    let calm = Doing {
        cpu: 600,
        expiring: 400,
        ..IDLE
    };
    assert_eq!(by_cause(calm), [0.0; 2]);
}

/// With `hz` 1 and a high effort.
#[test]
fn a_long_cycle_counts_from_its_beginning() {
    let mut thread = Thread::new();
    thread.goes_on(IDLE, 3_070, 100);
    thread.now.expiring_since = Some(thread.now.at);
    let cycle = Doing {
        expiring: 1_000,
        ..BUSY
    };
    thread.goes_on(cycle, 400, 20);
    thread.now.expiring_since = None;
    thread.goes_on(IDLE, 3_000, 20);
    let stalled = thread.stalls.total(StallCause::Expire).as_secs_f64();
    assert_between(stalled, 0.36, 0.41);
    assert_eq!(thread.stalled(), 0.0);
}

proptest! {
    #[test]
    fn no_more_is_counted_than_has_passed(
        steps in prop::collection::vec(
            (0..2_000_u64, 0..2_000_u64, (0..2_000_u64, 0..2_000_u64), 0..2_000_u64, prop::option::of(0..3_000_u64), any::<bool>()),
            0..80,
        ),
    ) {
        let mut stalls = Stalls::new();
        let mut now = Thread::new().now;
        let begin = now.at;
        let mut before = Duration::ZERO;
        for (elapsed, cpu, (waiting, expiring), evicting, under_way, is_observed) in steps {
            let elapsed = Duration::from_millis(elapsed / 10 + 1);
            now.at += elapsed;
            now.times.cpu_ns += cpu * MS;
            now.times.waiting_ns += waiting * MS;
            now.evicting_ns += evicting * MS;
            now.expiring_ns += expiring * MS;
            now.evicting_since = under_way.map(|time| now.at.saturating_sub(Duration::from_millis(time)).max(begin));
            now.observed += if is_observed { elapsed } else { Duration::ZERO };
            now.evicted_keys = Some(now.evicted_keys.unwrap_or(0) + evicting);
            stalls.advance(Some(now));
            let total = stalls.total(StallCause::Eviction) + stalls.total(StallCause::Expire);
            prop_assert!(total >= before);
            before = total;
            prop_assert!(before <= now.at - begin + TENTH);
        }
        prop_assert!(before <= now.at - begin);
    }
}
