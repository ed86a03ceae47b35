//! The three-phase cycle, as the samples show it.
//!
//! A burst is `saturated` from the first eviction after a quiet time until the last one before a quiet time. `reclaim` follows,
//! in which memory falls, until the backlog is worked off. The time before the burst, back to the last cycle or to the beginning
//! of the load, is `not_saturated`. Everything comes from the server's own `INFO` and the generator's counts, so that the agent
//! can be judged against it.

use crate::client::Sample;
use crate::counts::Load;

/// How long without an eviction ends `saturated`, in seconds: by the definition of a burst, and as known from samples, which are
/// 0.1 s apart or less.
pub const QUIET: f64 = 1.0;

/// How long memory may still fall after the backlog is worked off, in seconds: in each round of its event loop the server's
/// memory swells by the replies that it holds.
const SETTLED: f64 = 1.0;

/// How many seconds before a burst are compared with it, at most.
const BEFORE: f64 = 60.0;

/// A burst that begins with a backlog of more seconds than this, at the throughput before it, begins in the backlog
/// of another burst. The backlog of a calm time is some milliseconds.
const BACKLOG: f64 = 0.5;

/// One burst, with what precedes it. Times are seconds since 1970, sizes bytes, rates a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cycle {
    /// First eviction: the middle between the samples before and after it.
    pub start: f64,
    /// Last eviction, likewise.
    pub end: f64,
    /// When the backlog was no more than what fell due in the last tenth of a second.
    pub reclaim_end: f64,
    /// Whether the record goes on after the reclaim, so that all of this is final.
    pub complete: bool,
    pub evicted_keys: u64,
    /// Commands in the last minute of `not_saturated`, or in all of it if it is shorter. `None` if it has no length, or if a
    /// backlog was worked off in it.
    pub throughput_before: Option<f64>,
    /// Commands between the first and the last sample that lie in the burst for certain, because right after it a server answers
    /// ten times as many. If there are no two such samples, it is between the last one before the burst and the first one after
    /// it.
    pub throughput_during: f64,
    /// The highest until `reclaim_end`.
    pub backlog_peak: u64,
    /// The highest sample until `reclaim_end`.
    pub client_buffers_peak: u64,
    /// The higher of the samples around the last eviction, less the lowest of the reclaim and of a second after it.
    pub reclaimed: u64,
}

/// Finds the cycles of a load that began at `begin`. The lists are in the order of time.
pub fn find(begin: f64, samples: &[Sample], loads: &[Load]) -> Vec<Cycle> {
    let mut cycles: Vec<Cycle> = Vec::new();
    for (first, last) in bursts(samples) {
        let since = cycles.last().map_or(begin, |cycle| cycle.reclaim_end);
        cycles.push(cycle(since, samples, first, last, loads));
    }
    cycles
}

impl Cycle {
    /// Returns whether it is complete and not an aftershock. A burst that begins in the backlog of another has no
    /// calm time before it to be compared with, and may be of another kind.
    pub fn stands_alone(&self) -> bool {
        self.complete && self.throughput_before.is_some()
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

fn cycle(since: f64, samples: &[Sample], first: usize, last: usize, loads: &[Load]) -> Cycle {
    let (before, after_first) = (&samples[first - 1], &samples[first]);
    let (before_last, at_end) = (&samples[last - 1], &samples[last]);
    let start = f64::midpoint(before.at, after_first.at);
    let end = f64::midpoint(before_last.at, at_end.at);
    let (from, to) = match before_last.at > after_first.at {
        true => (after_first, before_last),
        false => (before, at_end),
    };

    let mut after = samples[last..].iter();
    let next = after.find(|sample| sample.evicted_keys > at_end.evicted_keys);
    let next = next.map(|sample| sample.at);
    let mut counts = loads.windows(2).filter(|pair| pair[0].at >= end);
    let worked_off =
        counts.find(|pair| pair[1].backlog_peak <= pair[1].totals.due - pair[0].totals.due);
    let worked_off = worked_off.map(|pair| pair[1].at);
    let known = worked_off.into_iter().chain(next).reduce(f64::min);
    let record_ends = samples[samples.len() - 1].at;
    let reclaim_end = known.unwrap_or(record_ends);

    let within = |from: f64, to: f64| {
        samples
            .iter()
            .filter(move |sample| sample.at >= from && sample.at <= to)
    };
    let buffers = within(before.at, reclaim_end).map(|sample| sample.client_buffers);
    let low = within(
        at_end.at,
        next.unwrap_or(f64::MAX).min(reclaim_end + SETTLED),
    );
    let memory_after = low.map(|sample| sample.used_memory).min();
    let memory_after = memory_after.unwrap_or(at_end.used_memory);
    let calm = within(since.max(start - BEFORE), before.at).next();
    let backlog_before = loads.iter().rev().find(|load| load.at <= start);
    let backlog_before = backlog_before.map_or(0, |load| load.backlog);
    let backlogs = loads
        .iter()
        .filter(|load| load.at >= start && load.at <= reclaim_end);
    Cycle {
        start,
        end,
        reclaim_end,
        // The next burst ends the reclaim.
        complete: next.is_some() || known.is_some() && record_ends - at_end.at >= QUIET,
        evicted_keys: at_end.evicted_keys - before.evicted_keys,
        throughput_before: calm
            .filter(|calm| calm.at < before.at)
            .map(|calm| throughput(calm, before))
            .filter(|throughput| backlog_before as f64 <= BACKLOG * throughput),
        throughput_during: throughput(from, to),
        backlog_peak: backlogs
            .map(|load| load.backlog_peak)
            .max()
            .unwrap_or_default(),
        client_buffers_peak: buffers.max().unwrap_or_default(),
        reclaimed: (before_last.used_memory.max(at_end.used_memory)).saturating_sub(memory_after),
    }
}

/// Returns the commands a second between two samples.
fn throughput(from: &Sample, to: &Sample) -> f64 {
    (to.commands - from.commands) as f64 / (to.at - from.at)
}

#[cfg(test)]
mod tests;
