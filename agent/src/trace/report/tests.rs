use std::time::Duration;

use evictscope_abi::{SlowCall, trace_bucket};
use evictscope_probes::TraceCounts;

use super::{Clock, Second, Summary, duration, quantile, share, slow_call};
use crate::trace::subject::Cycle;

fn counts(durations: &[(u64, u64)]) -> TraceCounts {
    let mut counts = TraceCounts::NONE;
    for (ns, calls) in durations {
        counts.durations[trace_bucket(*ns)] += calls;
        counts.longest_ns = counts.longest_ns.max(*ns);
        counts.sum_ns += ns * calls;
    }
    counts
}

#[test]
fn numbers_have_their_units() {
    let durations = [64.0, 1_500.0, 250_000.0, 2_340_000.0, 3e9].map(duration);
    assert_eq!(durations, ["64 ns", "1.5 µs", "250 µs", "2.34 ms", "3.00 s"]);
    let shares = [0.00001, 0.0003, 0.125, 1.0].map(share);
    assert_eq!(shares, ["0.0010 %", "0.03 %", "12.5 %", "100 %"]);
}

#[test]
fn a_quantile_is_in_the_bucket_of_the_call() {
    let counts = counts(&[(1_000, 98), (70_000, 2)]);
    let of = |part| quantile(&counts.durations, part).map(|ns| trace_bucket(ns as u64));
    assert_eq!(of(0.5), Some(trace_bucket(1_000)));
    assert_eq!(of(0.99), Some(trace_bucket(70_000)));
    assert_eq!(quantile(&TraceCounts::NONE.durations, 0.5), None);
}

#[test]
fn a_second_that_was_observed_in_part_has_calls_per_observed_second() {
    let second = |observed| {
        Second {
            at: Duration::from_secs(5),
            length: Duration::from_secs(1),
            observed,
            before: &counts(&[(1_000, 10)]),
            now: &counts(&[(1_000, 60)]),
        }
        .text(Clock { zero: Duration::ZERO })
    };
    let whole = second(Duration::from_secs(1));
    assert!(whole.starts_with("00:00:05  50 calls\n"), "{whole}");
    assert!(whole.contains(" :        50 |***"), "{whole}");
    let part = second(Duration::from_millis(100));
    let head = "00:00:05  50 calls in the 10.0 % of this second that was observed: 500/s\n";
    assert!(part.starts_with(head), "{part}");
    assert!(part.contains(" :       500 |***"), "{part}");
    let none = second(Duration::ZERO);
    assert!(none.contains("not observed"), "{none}");
}

#[test]
fn a_slow_call_says_what_ran_inside() {
    let cycles = [(0, "eviction"), (1, "expire")].map(|(number, name)| Cycle { number, name, begin: None });
    let clock = Clock { zero: Duration::ZERO };
    let line = |ran, tid, cycles: &[Cycle]| {
        let call = SlowCall { ended_ns: 3_001_500_000, duration_ns: 1_500_000, tid, ran };
        slow_call(&call, 7, cycles, clock)
    };
    let expected = "00:00:03.000000       1.50 ms  main    eviction, expire\n";
    assert_eq!(line(3, 7, &cycles), expected);
    let expected = "00:00:03.000000       1.50 ms  8       -\n";
    assert_eq!(line(0, 8, &cycles), expected);
    let expected = "00:00:03.000000       1.50 ms  main\n";
    assert_eq!(line(0, 7, &[]), expected);
}

#[test]
fn a_summary_says_what_is_missing() {
    let mut counts = counts(&[(1_000, 100)]);
    counts.nested = 3;
    let summary = Summary {
        function: "getCommand".to_owned(),
        length: Duration::from_secs(10),
        observed: Duration::from_secs(1),
        counts: &counts,
        unfinished: 1,
        slow: Some((Duration::from_millis(50), 2)),
        call_ns: 1_200.0,
        cost: 0.009,
        budget: 0.01,
    }
    .text();
    for part in [
        "getCommand: 100 calls in 10.0 s, of which 1.00 s (10.0 %) were observed: 100 calls per",
        "median 960 ns, p99 1.0 µs, longest 1.0 µs, mean 1.0 µs (of the 10.0 % of the time that was observed)",
        "  2 calls took longer than 50.00 ms, in the 10.0 % of the time that was observed: those that began in the rest are missing",
        "cost   1.2 µs each call, 0.90 % of one thread's time, of 1.0 % allowed",
        "  3 calls that the function made to itself",
        "  1 call had not returned",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
    assert!(!summary.contains("longjmp"), "{summary}");
}
