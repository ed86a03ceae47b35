use super::*;
use crate::counts::Totals;

const BEGIN: f64 = 1000.0;

/// Returns samples every 0.1 s of a server that fills from 80 on, at 2 a second, evicts from 100 for
/// two seconds, and then falls to 80 at 10 a second; and the counts of its load.
fn record(rounds: usize) -> (Vec<Sample>, Vec<Load>) {
    let (mut samples, mut loads) = (Vec::new(), Vec::new());
    let (mut commands, mut evicted) = (0, 0);
    let mut totals = Totals::default();
    let mut step = 0;
    let mut push = |memory: f64, rate: u64, evictions: u64, buffers: u64, backlog: u64| {
        commands += rate / 10;
        evicted += evictions;
        let at = BEGIN + f64::from(step) / 10.0;
        samples.push(Sample {
            at,
            used_memory: memory as u64,
            commands,
            evicted_keys: evicted,
            client_buffers: buffers,
            ..Sample::default()
        });
        totals.due += 100;
        loads.push(Load {
            at,
            totals,
            backlog,
            backlog_peak: backlog + 1,
            ..Load::default()
        });
        step += 1;
    };
    for _ in 0..rounds {
        for tenth in 0..100_u32 {
            push(8000.0 + f64::from(tenth) * 20.0, 1000, 0, 10, 5);
        }
        for tenth in 0..20 {
            push(10_050.0, 200, 7, 10 + tenth, 5 + 20 * tenth);
        }
        for tenth in 0..30_u32 {
            let memory = 10_000.0 - f64::from(tenth) * 2000.0 / 29.0;
            let left = u64::from(30 - tenth);
            push(memory, 1000, 0, 10 + left, 10 * left);
        }
    }
    (samples, loads)
}

fn near(value: f64, expected: f64) -> bool {
    (value - expected).abs() < 1e-6
}

#[test]
fn each_burst_is_found_once_with_its_phases() {
    let (samples, loads) = record(3);
    let cycles = find(BEGIN, &samples, &loads);
    assert_eq!(cycles.len(), 3);
    for (number, cycle) in cycles.iter().enumerate() {
        let round = BEGIN + 15.0 * number as f64;
        assert!(near(cycle.start, round + 9.95), "{cycle:?}");
        assert!(near(cycle.end, round + 11.85));
        assert!(cycle.complete && cycle.stands_alone());
        assert_eq!(cycle.evicted_keys, 20 * 7);
        assert!(near(cycle.throughput_before.unwrap_or_default(), 1000.0));
        assert!(near(cycle.throughput_during, 200.0));
        assert_eq!((cycle.backlog_peak, cycle.client_buffers_peak), (386, 40));
        assert_eq!(cycle.reclaimed, 2050);
        // From then on no more than 100 requests wait, which is what falls due in a tenth of a second.
        assert!(near(cycle.reclaim_end, round + 14.1));
    }
}

#[test]
fn a_burst_in_the_backlog_of_another_does_not_stand_alone() {
    let (samples, mut loads) = record(3);
    for load in &mut loads[245..250] {
        load.backlog = 600;
    }
    let cycles = find(BEGIN, &samples, &loads);
    let alone: Vec<_> = cycles.iter().map(Cycle::stands_alone).collect();
    assert_eq!(alone, [true, false, true]);
    assert!(cycles[1].complete && cycles[1].throughput_before.is_none());
}

#[test]
fn only_a_quiet_time_ends_a_burst() {
    let sample = |at: f64, evicted_keys| Sample {
        at,
        evicted_keys,
        ..Sample::default()
    };
    let pause = |seconds: f64| {
        let again = 1.0 + seconds;
        let samples = [
            sample(0.0, 0),
            sample(0.5, 1),
            sample(1.0, 2),
            sample(again, 2),
            sample(again + 0.1, 3),
            sample(again + 0.2, 3),
        ];
        find(0.0, &samples, &[]).len()
    };
    assert_eq!(pause(QUIET - 0.1), 1);
    assert_eq!(pause(QUIET + 0.1), 2);
}

#[test]
fn evictions_before_the_first_sample_do_not_count() {
    let sample = |at: f64| Sample {
        at,
        evicted_keys: 1_000_000,
        ..Sample::default()
    };
    assert_eq!(find(0.0, &[sample(1.0), sample(2.0)], &[]), []);
    assert_eq!(find(0.0, &[sample(1.0)], &[]), []);
    assert_eq!(find(0.0, &[], &[]), []);
}
