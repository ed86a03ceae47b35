//! The three-phase cycle, as the record shows it.
//!
//! A burst is `saturated` from the first eviction after a quiet time until the last one before a quiet time. `reclaim`
//! follows for as long as memory keeps falling. The time before the burst, back to the last cycle or to the beginning
//! of the load, is `not_saturated`. Everything comes from the server's own `INFO` and the generator's counts, so that
//! the agent can be judged by it.

use serde::Serialize;

use crate::{
    counts::Load,
    premise::{Premise, Times},
    sample::Sample,
};

/// Without an eviction for this long, `saturated` is over: seconds, by the definition of a burst and
/// as known from samples, which are 0.1 s apart or less.
pub const QUIET: f64 = 1.0;

/// `reclaim` is over when memory has fallen but for this share of its whole fall, and stays there. In each round of
/// its event loop the server's memory swells by the replies that it holds.
const LEFT: f64 = 0.2;

/// How long memory has to stay low, in seconds: some rounds of a server that works off a backlog.
const SETTLED: f64 = 1.0;

/// How many seconds before a burst are compared with it, at most.
const BEFORE: f64 = 60.0;
/// The last seconds before it, which show how busy the server was when it reached the limit.
const JUST_BEFORE: f64 = 2.0;

/// A burst that begins with a backlog of more seconds than this, at the throughput before it, begins in the backlog
/// of another burst. The backlog of a calm time is some milliseconds.
const BACKLOG: f64 = 0.5;

/// One burst, with what precedes it. Times are seconds since 1970, sizes bytes, rates a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Cycle {
    /// First eviction: the middle between the samples before and after it.
    pub start: f64,
    /// Last eviction, likewise.
    pub end: f64,
    /// When memory had fallen, but for a fifth, to stay there.
    pub reclaim_end: f64,
    /// Half the time between the samples around `start`.
    pub start_uncertainty: f64,
    /// Half the time between the samples around `end`.
    pub end_uncertainty: f64,
    /// Whether the record goes on after the reclaim, so that all of this is final.
    pub complete: bool,
    /// From the end of the last cycle's reclaim, or the beginning of the load, to `start`.
    pub not_saturated_seconds: f64,
    /// From `start` to `end`.
    pub saturated_seconds: f64,
    /// From `end` to `reclaim_end`.
    pub reclaim_seconds: f64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// Commands in the last minute of `not_saturated`, or in all of it where it is shorter. `None` where it has no
    /// length, or where a backlog was worked off in it.
    pub throughput_before: Option<f64>,
    /// Commands between the first and the last sample that lie in the burst for certain, because right after it a
    /// server answers ten times as many. Where there are no two such samples, it is between the last one before the
    /// burst and the first one after it.
    pub throughput_during: f64,
    /// The backlog at the last count before `start`.
    pub backlog_before: u64,
    /// The highest until `reclaim_end`.
    pub backlog_peak: u64,
    /// At the last sample before `start`.
    pub client_buffers_before: u64,
    /// The highest sample until `reclaim_end`.
    pub client_buffers_peak: u64,
    /// At the last sample before `start`.
    pub memory_at_start: u64,
    /// The highest sample until `end`.
    pub memory_peak: u64,
    /// The lowest of the reclaim, and of the time in which memory then stays low.
    pub memory_after: u64,
    /// The higher of the samples around the last eviction, less `memory_after`.
    pub reclaimed: u64,
    /// CPU time of the main thread as a share of the time, between the same samples.
    pub main_thread_cpu: f64,
    /// The same in the seconds before `start`.
    pub main_thread_cpu_before: f64,
    /// What was missing before the burst.
    pub not_saturated: Premise,
    /// What was missing in it.
    pub saturated: Premise,
    /// What was missing in the reclaim.
    pub reclaim: Premise,
}

/// Finds the cycles of a load that began at `begin`. The lists are in the order of time.
pub fn find(begin: f64, samples: &[Sample], loads: &[Load], times: &[Times]) -> Vec<Cycle> {
    let mut cycles: Vec<Cycle> = Vec::new();
    for (first, last) in bursts(samples) {
        let since = cycles.last().map_or(begin, |cycle| cycle.reclaim_end);
        cycles.push(cycle(since, samples, first, last, loads, times));
    }
    cycles
}

impl Cycle {
    /// Returns whether it is complete and not an aftershock. A burst that begins in the backlog of another has no
    /// calm time before it to be compared with, and may be of another kind.
    pub fn stands_alone(&self) -> bool {
        self.complete && self.throughput_before.is_some()
    }

    /// Returns its phases, and what was missing in each.
    pub fn phases(&self) -> [(&'static str, Premise); 3] {
        [
            ("not_saturated", self.not_saturated),
            ("saturated", self.saturated),
            ("reclaim", self.reclaim),
        ]
    }

    /// Returns the throughput in the burst as a share of that before it.
    pub fn throughput_ratio(&self) -> Option<f64> {
        Some(self.throughput_during / self.throughput_before?)
    }
}

/// Finds the first and the last sample of each burst that show evictions since the sample before.
fn bursts(samples: &[Sample]) -> Vec<(usize, usize)> {
    let mut bursts: Vec<(usize, usize)> = Vec::new();
    for (index, pair) in samples.windows(2).enumerate() {
        if pair[1].evicted_keys <= pair[0].evicted_keys {
            continue;
        }
        match bursts.last_mut() {
            Some(burst) if pair[0].at - samples[burst.1].at < QUIET => burst.1 = index + 1,
            _ => bursts.push((index + 1, index + 1)),
        }
    }
    bursts
}

fn cycle(
    since: f64,
    samples: &[Sample],
    first: usize,
    last: usize,
    loads: &[Load],
    times: &[Times],
) -> Cycle {
    let (before, after_first) = (&samples[first - 1], &samples[first]);
    let (before_last, at_end) = (&samples[last - 1], &samples[last]);
    let start = f64::midpoint(before.at, after_first.at);
    let end = f64::midpoint(before_last.at, at_end.at);
    let (from, to) = match before_last.at > after_first.at {
        true => (after_first, before_last),
        false => (before, at_end),
    };

    let after = until_next_eviction(&samples[last..]);
    let memory_peak = samples[first - 1..=last]
        .iter()
        .map(|sample| sample.used_memory)
        .max()
        .unwrap_or_default();
    let memory_at_end = before_last.used_memory.max(at_end.used_memory);
    let settled = settled(memory_peak, after);
    let memory_after = lowest(memory_peak, after, settled);
    let reclaim_end = settled.unwrap_or(after[after.len() - 1].at).max(end);
    // The next burst ends the reclaim.
    let complete = last + after.len() < samples.len()
        || settled.is_some() && after[after.len() - 1].at - at_end.at >= QUIET;

    let within = |from: f64, to: f64| {
        samples
            .iter()
            .filter(move |sample| sample.at >= from && sample.at <= to)
    };
    let highest = |value: fn(&Sample) -> u64| {
        let values = within(before.at, reclaim_end).map(value);
        values.max().unwrap_or_default()
    };
    let missing = |from, to| Premise::between(from, to, times, loads);
    let calm = within(since.max(start - BEFORE), before.at).next();
    let last_seconds = within(since.max(start - JUST_BEFORE), before.at).next();
    let backlog_before = loads.iter().rev().find(|load| load.at <= start);
    let backlog_before = backlog_before.map_or(0, |load| load.backlog);
    let backlogs = loads
        .iter()
        .filter(|load| load.at >= start && load.at <= reclaim_end);
    Cycle {
        start,
        end,
        reclaim_end,
        start_uncertainty: (after_first.at - before.at) / 2.0,
        end_uncertainty: (at_end.at - before_last.at) / 2.0,
        complete,
        not_saturated_seconds: (start - since).max(0.0),
        saturated_seconds: end - start,
        reclaim_seconds: reclaim_end - end,
        evicted_keys: at_end.evicted_keys - before.evicted_keys,
        throughput_before: calm
            .filter(|calm| calm.at < before.at)
            .map(|calm| throughput(calm, before))
            .filter(|throughput| backlog_before as f64 <= BACKLOG * throughput),
        throughput_during: throughput(from, to),
        backlog_before,
        backlog_peak: backlogs
            .map(|load| load.backlog_peak)
            .max()
            .unwrap_or_default(),
        client_buffers_before: before.client_buffers,
        client_buffers_peak: highest(|sample| sample.client_buffers),
        memory_at_start: before.used_memory,
        memory_peak,
        memory_after,
        reclaimed: memory_at_end.saturating_sub(memory_after),
        main_thread_cpu: busy(from, to),
        main_thread_cpu_before: last_seconds.map_or(0.0, |from| busy(from, before)),
        not_saturated: missing(since.min(start), start),
        saturated: missing(start, end),
        reclaim: missing(end, reclaim_end),
    }
}

/// Returns the samples before the next eviction.
fn until_next_eviction(samples: &[Sample]) -> &[Sample] {
    let evicted = samples[0].evicted_keys;
    let end = samples
        .iter()
        .position(|sample| sample.evicted_keys > evicted);
    &samples[..end.unwrap_or(samples.len())]
}

/// Returns the lowest memory after `peak`, until it has stayed low for a time since `settled`.
fn lowest(peak: u64, samples: &[Sample], settled: Option<f64>) -> u64 {
    let stayed = settled.map_or(f64::MAX, |settled| settled + SETTLED);
    let fallen = samples.iter().take_while(|sample| sample.at <= stayed);
    let memory = fallen.map(|sample| sample.used_memory);
    memory.min().unwrap_or(peak).min(peak)
}

/// Returns when memory had fallen from `peak` but for a share of its fall, where it falls no more: the highest of each
/// second falls while a backlog is worked off.
fn settled(peak: u64, samples: &[Sample]) -> Option<f64> {
    let end = samples.last()?.at;
    let seconds = samples
        .iter()
        .enumerate()
        .take_while(|(_, sample)| sample.at + SETTLED <= end);
    let highest = seconds.filter_map(|(index, first)| {
        let within = samples[index..]
            .iter()
            .take_while(|sample| sample.at <= first.at + SETTLED);
        let highest = within.map(|sample| sample.used_memory).max()?;
        Some((first.at, highest))
    });
    let highest: Vec<(f64, u64)> = highest.collect();
    let least = highest.iter().map(|highest| highest.1).min()?;
    let falls_no_more = highest.last().is_some_and(|last| last.1 > least);
    let low = least as f64 + peak.saturating_sub(least) as f64 * LEFT;
    let mut seconds = highest.iter().filter(|_| falls_no_more);
    let settled = seconds.find(|highest| highest.1 as f64 <= low)?;
    Some(settled.0)
}

/// Returns the CPU time of the main thread between two samples, as a share of the time.
fn busy(from: &Sample, to: &Sample) -> f64 {
    match to.at > from.at {
        true => (to.main_thread_cpu - from.main_thread_cpu) / (to.at - from.at),
        false => 0.0,
    }
}

/// Returns the commands a second between two samples.
fn throughput(from: &Sample, to: &Sample) -> f64 {
    (to.commands - from.commands) as f64 / (to.at - from.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: f64 = 1000.0;

    /// Samples every 0.1 s of a server that is filled from 80 on, at 2 a second, evicts from 100 for
    /// two seconds, and then falls to 80 at 10 a second; and the counts of its load.
    fn record(rounds: usize) -> (Vec<Sample>, Vec<Load>) {
        let (mut samples, mut loads) = (Vec::new(), Vec::new());
        let (mut commands, mut evicted, mut cpu) = (0, 0, 0.0);
        let mut step = 0;
        let mut push = |memory: f64, rate: u64, evictions: u64, buffers: u64, backlog: u64| {
            commands += rate / 10;
            evicted += evictions;
            cpu += if evictions > 0 { 0.1 } else { 0.05 };
            let at = BEGIN + f64::from(step) / 10.0;
            samples.push(Sample {
                at,
                used_memory: memory as u64,
                commands,
                evicted_keys: evicted,
                client_buffers: buffers,
                main_thread_cpu: cpu,
                ..Sample::default()
            });
            loads.push(Load {
                at,
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
        let cycles = find(BEGIN, &samples, &loads, &[]);
        assert_eq!(cycles.len(), 3);
        for (number, cycle) in cycles.iter().enumerate() {
            let round = BEGIN + 15.0 * number as f64;
            assert!(near(cycle.start, round + 9.95), "{cycle:?}");
            assert!(near(cycle.end, round + 11.85));
            // The end of the record leaves the last reclaim open: memory may fall further.
            assert_eq!(cycle.complete, number < 2);
            assert_eq!(cycle.evicted_keys, 20 * 7);
            assert!(
                cycle
                    .throughput_before
                    .is_some_and(|rate| near(rate, 1000.0))
            );
            assert!(near(cycle.throughput_during, 200.0));
            assert_eq!((cycle.backlog_before, cycle.backlog_peak), (5, 386));
            assert_eq!(
                (cycle.client_buffers_before, cycle.client_buffers_peak),
                (10, 40)
            );
            assert_eq!((cycle.memory_at_start, cycle.memory_peak), (9980, 10_050));
            assert_eq!((cycle.memory_after, cycle.reclaimed), (8000, 2050));
            assert!(near(cycle.main_thread_cpu, 1.0));
            assert!(near(cycle.main_thread_cpu_before, 0.5));
            // At the lowest, memory stays below 8,138 for a second. A fifth of the fall is left at
            // 8,520. Of the last one, the record does not show that it falls no more.
            let reclaim = if cycle.complete { 2.35 } else { 3.05 };
            assert!(near(cycle.reclaim_seconds, reclaim));
        }
        assert!(near(cycles[0].not_saturated_seconds, 9.95));
        assert!(near(cycles[1].not_saturated_seconds, 10.75));
    }

    #[test]
    fn a_burst_in_the_backlog_of_another_does_not_stand_alone() {
        let (samples, mut loads) = record(3);
        for load in &mut loads[245..250] {
            load.backlog = 600;
        }
        let cycles = find(BEGIN, &samples, &loads, &[]);
        let alone: Vec<_> = cycles.iter().map(Cycle::stands_alone).collect();
        assert_eq!(alone, [true, false, false]);
        assert_eq!(cycles[1].throughput_before, None);
        assert!(cycles[1].complete && !cycles[2].complete);
    }

    #[test]
    fn memory_has_not_fallen_while_it_swells_in_each_round() {
        let sample = |(tenth, used_memory): (u32, u64)| Sample {
            at: f64::from(tenth) / 10.0,
            used_memory,
            ..Sample::default()
        };
        let rounds = (0..30).map(|tenth| (tenth, if tenth % 5 == 0 { 900 } else { 500 }));
        let calm = (30..60).map(|tenth| (tenth, 550 + u64::from(tenth)));
        let samples: Vec<_> = rounds.clone().chain(calm).map(sample).collect();
        assert_eq!(settled(1000, &samples), Some(2.6));
        assert_eq!(lowest(1000, &samples, Some(2.8)), 500);
        let samples: Vec<_> = rounds.map(sample).collect();
        assert_eq!(settled(1000, &samples), None);
        assert_eq!(lowest(1000, &samples, None), 500);
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
            find(0.0, &samples, &[], &[]).len()
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
        assert_eq!(find(0.0, &[sample(1.0), sample(2.0)], &[], &[]), []);
        assert_eq!(find(0.0, &[sample(1.0)], &[], &[]), []);
        assert_eq!(find(0.0, &[], &[], &[]), []);
    }
}
