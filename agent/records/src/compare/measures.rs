//! The measures by which two records are compared.

use std::time::Duration;

use evictscope_abi::bounds;
use evictscope_telemetry::{Burst, Moment, microseconds};

use super::seconds::{median, seconds};
use crate::{Occasion, Record};

/// A value of one record, `None` if it is not known, and the same in each second, if there is one in each.
pub(super) type Measured = (Option<f64>, Vec<f64>);

/// What the numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasureUnit {
    Count,
    Bytes,
    Seconds,
    Share,
}

/// How a value is measured.
pub(super) enum Of {
    /// In each second before it.
    Before(OfSecond),
    /// In each second of it, without the reclaim.
    During(OfSecond),
    /// A quantile of the durations of evicting calls.
    Calls(f64),
    /// Once per record.
    Once(fn(&Record) -> Option<f64>),
}

/// All measures with their names, in the order in which they are shown.
pub(super) const MEASURES: [(&str, MeasureUnit, Of); 19] = [
    ("commands/s before", MeasureUnit::Count, Of::Before(commands)),
    ("commands/s in it", MeasureUnit::Count, Of::During(commands)),
    ("CPU per command before", MeasureUnit::Seconds, Of::Before(cpu_per_command)),
    ("CPU per command in it", MeasureUnit::Seconds, Of::During(cpu_per_command)),
    ("main thread's CPU before", MeasureUnit::Share, Of::Before(cpu)),
    ("main thread's CPU in it", MeasureUnit::Share, Of::During(cpu)),
    ("time in evicting calls", MeasureUnit::Share, Of::During(evicting)),
    ("evicting calls/s", MeasureUnit::Count, Of::During(calls)),
    ("evicting call, median", MeasureUnit::Seconds, Of::Calls(0.5)),
    ("evicting call, p99", MeasureUnit::Seconds, Of::Calls(0.99)),
    ("evicted keys/s", MeasureUnit::Count, Of::During(evicted)),
    ("stalled", MeasureUnit::Seconds, Of::Once(stalled)),
    ("client buffers, peak", MeasureUnit::Bytes, Of::Once(client_buffers)),
    ("memory, peak", MeasureUnit::Bytes, Of::Once(memory)),
    ("memory, after", MeasureUnit::Bytes, Of::Once(|record| of_burst(record, |burst| burst.memory_after))),
    ("memory reclaimed", MeasureUnit::Bytes, Of::Once(|record| of_burst(record, Burst::reclaimed))),
    ("keys evicted", MeasureUnit::Count, Of::Once(|record| of_burst(record, |burst| burst.evicted_keys))),
    ("duration", MeasureUnit::Seconds, Of::Once(|record| Some(saturated(record) as f64 / 1e6))),
    ("duration of the reclaim", MeasureUnit::Seconds, Of::Once(reclaim)),
];

impl Of {
    pub(super) fn measured(&self, record: &Record) -> Measured {
        let began = record.began_us;
        match *self {
            Self::Before(of) => within(record, 0, began, of),
            Self::During(of) => within(record, began, began.saturating_add(saturated(record)), of),
            Self::Calls(quantile) => quantiles(record, quantile),
            Self::Once(of) => (of(record), Vec::new()),
        }
    }

    /// Returns the smallest difference that can be measured, as a share of a value.
    pub(super) fn resolution(&self) -> f64 {
        match self {
            // Bounds of their histogram are a tenth apart.
            Self::Calls(_) => 0.1,
            // The times at which they are read differ by some of a second's ticks.
            _ => 0.01,
        }
    }
}

fn of_burst(record: &Record, of: fn(&Burst) -> Option<u64>) -> Option<f64> {
    Some(of(record.burst.as_ref()?)? as f64)
}

fn reclaim(record: &Record) -> Option<f64> {
    Some(record.burst.as_ref()?.reclaim.as_secs_f64())
}

/// Returns how long the burst lasted without its reclaim, or what the record is about, microseconds.
fn saturated(record: &Record) -> u64 {
    let whole = record.ended_us.saturating_sub(record.began_us);
    // A stall is longer than the burst in it.
    let burst = record.burst.as_ref().filter(|_| record.occasion != Occasion::Stall);
    burst.map_or(whole, |burst| u64::try_from(burst.duration.as_micros()).unwrap_or(whole))
}

type OfSecond = fn(&Moment, &Moment) -> Option<f64>;

/// Returns the median of the values in each second of a time, and the values.
fn within(record: &Record, from_us: u64, until_us: u64, of: OfSecond) -> Measured {
    let seconds = seconds(&record.moments, from_us, until_us).into_iter();
    let seconds: Vec<f64> = seconds.filter_map(|(first, last)| of(first, last)).collect();
    (median(&seconds), seconds)
}

/// Returns by how much a counter grew; `None` if it is not known, or was reset.
fn growth(first: Option<u64>, last: Option<u64>) -> Option<f64> {
    Some(last?.checked_sub(first?)? as f64)
}

/// Returns by how many seconds a time grew, likewise.
fn seconds_more(first: Option<Duration>, last: Option<Duration>) -> Option<f64> {
    Some(growth(first.map(microseconds), last.map(microseconds))? / 1e6)
}

fn passed(first: &Moment, last: &Moment) -> Option<f64> {
    seconds_more(Some(first.at), Some(last.at))
}

fn ratio(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| value / of)
}

fn commands(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(growth(first.commands, last.commands)?, passed(first, last)?)
}

fn cpu_seconds(first: &Moment, last: &Moment) -> Option<f64> {
    seconds_more(first.cpu, last.cpu)
}

fn cpu_per_command(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(cpu_seconds(first, last)?, growth(first.commands, last.commands)?)
}

fn cpu(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(cpu_seconds(first, last)?, passed(first, last)?)
}

/// Returns for how long calls were observed, seconds. Unobserved calls are in no counter.
fn observed(first: &Moment, last: &Moment) -> Option<f64> {
    seconds_more(Some(first.observed), Some(last.observed))
}

fn evicting(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(seconds_more(Some(first.evicting), Some(last.evicting))?, observed(first, last)?)
}

fn calls(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(growth(Some(first.evicting_calls), Some(last.evicting_calls))?, observed(first, last)?)
}

fn evicted(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(growth(first.evicted_keys, last.evicted_keys)?, passed(first, last)?)
}

/// Returns for how long the server was stalled in the whole record, seconds.
fn stalled(record: &Record) -> Option<f64> {
    let (first, last) = (record.moments.first()?, record.moments.last()?);
    seconds_more(first.stalled, last.stalled)
}

fn client_buffers(record: &Record) -> Option<f64> {
    highest(record, |moment| Some(moment.client_buffers?.total()))
}

fn memory(record: &Record) -> Option<f64> {
    highest(record, |moment| moment.used_memory)
}

/// Returns the highest value since the beginning of the burst.
fn highest(record: &Record, of: fn(&Moment) -> Option<u64>) -> Option<f64> {
    Some(record.moments.iter().filter(|moment| moment.unix_us() >= record.began_us).filter_map(of).max()? as f64)
}

/// Returns a quantile of the durations of all evicting calls, and of those of each second.
fn quantiles(record: &Record, quantile: f64) -> Measured {
    let all = record.latencies.iter().map(|second| &*second.counts);
    let seconds = all.clone().filter_map(|counts| quantile_of(counts, quantile));
    let counts: Vec<_> = all.flatten().copied().collect();
    (quantile_of(&counts, quantile), seconds.collect())
}

/// Returns the quantile of durations that were counted by bucket, seconds.
fn quantile_of(counts: &[(u16, u64)], part: f64) -> Option<f64> {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    let counts = counts.iter().map(|(bucket, count)| (usize::from(*bucket), *count));
    Some(quantile(counts, |bucket| bounds::INNER_NS.bound(bucket), part)? / 1e9)
}

/// Returns the quantile of values that were counted by bucket, in ascending order. Like Prometheus, it interpolates
/// between the bounds of a bucket, by the rank in it. Above the last bound, it returns that bound.
pub fn quantile(
    counts: impl Iterator<Item = (usize, u64)> + Clone,
    bound: impl Fn(usize) -> Option<u64>,
    part: f64,
) -> Option<f64> {
    let rank = part * counts.clone().map(|(_, count)| count as f64).sum::<f64>();
    let mut below = 0.0;
    for (bucket, count) in counts {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            let lower = bucket.checked_sub(1).and_then(&bound).unwrap_or(0) as f64;
            let upper = bound(bucket).map_or(lower, |upper| upper as f64);
            return Some(lower + (upper - lower) * (rank - below) / count);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::burst_record;

    fn value(name: &str, record: &Record) -> f64 {
        let measure = MEASURES.iter().find(|(measure, ..)| *measure == name);
        measure.and_then(|(.., of)| of.measured(record).0).unwrap_or(f64::NAN)
    }

    #[test]
    fn the_numbers_are_those_of_the_made_up_burst() {
        let record = burst_record();
        for (name, expected) in [
            ("commands/s before", 30_000.0),
            ("commands/s in it", 8_000.0),
            ("CPU per command before", 20e-6),
            ("CPU per command in it", 125e-6),
            ("main thread's CPU before", 0.6),
            ("main thread's CPU in it", 1.0),
            ("time in evicting calls", 0.8),
            ("evicting calls/s", 1_500.0),
            ("evicted keys/s", 40_000.0),
            ("stalled", 5.6),
            ("client buffers, peak", 50.0 * 1024.0 * 1024.0),
            ("memory, after", 300.0 * 1024.0 * 1024.0),
            ("keys evicted", 280_000.0),
            ("duration", 7.0),
            ("duration of the reclaim", 5.0),
        ] {
            let measured = value(name, &record);
            assert!((measured / expected - 1.0).abs() < 0.01, "{name}: {measured}, not {expected}");
        }
    }

    #[test]
    fn quantiles_are_interpolated_in_their_bucket() {
        let bound = |bucket| bounds::INNER_NS.bound(bucket).unwrap_or_default() as f64 / 1e9;
        let (lower, upper) = (bound(19), bound(20));
        let middle = quantile_of(&[(20, 100)], 0.5);
        assert!(middle.is_some_and(|middle| (middle - (lower + upper) / 2.0).abs() < 1e-9));
        assert_eq!(quantile_of(&[], 0.5), None);
        assert_eq!(quantile_of(&[(bounds::INNER_NS.buckets() as u16 - 1, 1)], 0.99), Some(1.0));
    }

    #[test]
    fn a_counter_that_was_reset_gives_no_rate() {
        let mut record = burst_record();
        for moment in &mut record.moments {
            moment.commands = Some(10_000_000 - moment.unix_us() / 1_000_000 % 100);
        }
        assert!(value("CPU per command before", &record).is_nan());
    }
}
