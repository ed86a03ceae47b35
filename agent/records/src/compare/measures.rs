//! What is compared of two records.

use evictscope_abi::bounds;
use evictscope_telemetry::{LatencySecond, Moment};

use super::seconds::{median, seconds};
use crate::{Occasion, Record};

/// A value of one record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    /// The value; `None` where it is not known.
    pub(super) value: Option<f64>,
    /// The same in each second, where there is one in each.
    pub(super) seconds: Vec<f64>,
}

/// What the numbers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Count,
    Bytes,
    Seconds,
    Share,
}

/// Something that is measured in a record.
pub(super) struct Measure {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// Differences below this share of the value are below what can be measured.
    pub(super) resolution: f64,
    pub(super) of: fn(&Record) -> Measured,
}

/// Two values may differ by this share without meaning: they are read at times that differ by some of a second's ticks.
const RESOLUTION: f64 = 0.01;
/// Bounds of the histogram of calls are a tenth apart.
const BUCKET: f64 = 0.1;

const fn measure(name: &'static str, unit: Unit, of: fn(&Record) -> Measured) -> Measure {
    Measure {
        name,
        unit,
        resolution: RESOLUTION,
        of,
    }
}

const fn latency(name: &'static str, of: fn(&Record) -> Measured) -> Measure {
    Measure {
        name,
        unit: Unit::Seconds,
        resolution: BUCKET,
        of,
    }
}

/// All of them, in the order in which they are shown.
pub(super) const MEASURES: [Measure; 19] = [
    measure("commands/s before", Unit::Count, |record| {
        before(record, commands)
    }),
    measure("commands/s in it", Unit::Count, |record| {
        during(record, commands)
    }),
    measure("CPU per command before", Unit::Seconds, |record| {
        before(record, cpu_per_command)
    }),
    measure("CPU per command in it", Unit::Seconds, |record| {
        during(record, cpu_per_command)
    }),
    measure("main thread's CPU before", Unit::Share, |record| {
        before(record, cpu)
    }),
    measure("main thread's CPU in it", Unit::Share, |record| {
        during(record, cpu)
    }),
    measure("time in evicting calls", Unit::Share, |record| {
        during(record, evicting)
    }),
    measure("evicting calls/s", Unit::Count, |record| {
        during(record, calls)
    }),
    latency("evicting call, median", |record| quantile(record, 0.5)),
    latency("evicting call, p99", |record| quantile(record, 0.99)),
    measure("evicted keys/s", Unit::Count, |record| {
        during(record, evicted)
    }),
    measure("stalled", Unit::Seconds, |record| one(stalled(record))),
    measure("client buffers, peak", Unit::Bytes, |record| {
        one(highest(record, |moment| {
            Some(moment.client_buffers?.total() as f64)
        }))
    }),
    measure("memory, peak", Unit::Bytes, |record| {
        one(highest(record, |moment| {
            moment.used_memory.map(|bytes| bytes as f64)
        }))
    }),
    measure("memory, after", Unit::Bytes, |record| {
        one(record
            .burst
            .as_ref()
            .and_then(|burst| Some(burst.memory_after? as f64)))
    }),
    measure("memory reclaimed", Unit::Bytes, |record| {
        one(record
            .burst
            .as_ref()
            .and_then(|burst| Some(burst.reclaimed()? as f64)))
    }),
    measure("keys evicted", Unit::Count, |record| {
        one(record
            .burst
            .as_ref()
            .and_then(|burst| Some(burst.evicted_keys? as f64)))
    }),
    measure("duration", Unit::Seconds, |record| {
        one(Some(saturated(record) as f64 / 1e6))
    }),
    measure("duration of the reclaim", Unit::Seconds, |record| {
        one(record
            .burst
            .as_ref()
            .map(|burst| burst.reclaim.as_secs_f64()))
    }),
];

fn one(value: Option<f64>) -> Measured {
    Measured {
        value,
        seconds: Vec::new(),
    }
}

/// Returns how long the burst lasted without its reclaim, or what the record is about, microseconds.
fn saturated(record: &Record) -> u64 {
    let whole = record.ended_us.saturating_sub(record.began_us);
    // A stall is longer than the burst that it had in it.
    let burst = record.burst.as_ref();
    let burst = burst.filter(|_| record.occasion != Occasion::Stall);
    burst.map_or(whole, |burst| {
        u64::try_from(burst.duration.as_micros()).unwrap_or(whole)
    })
}

type OfSecond = fn(&Moment, &Moment) -> Option<f64>;

fn before(record: &Record, of: OfSecond) -> Measured {
    within(record, 0, record.began_us, of)
}

fn during(record: &Record, of: OfSecond) -> Measured {
    let until = record.began_us.saturating_add(saturated(record));
    within(record, record.began_us, until, of)
}

/// Returns the value in each second of a time, and their median.
fn within(record: &Record, from_us: u64, until_us: u64, of: OfSecond) -> Measured {
    let seconds = seconds(&record.moments, from_us, until_us).into_iter();
    let seconds: Vec<f64> = seconds
        .filter_map(|(first, last)| of(first, last))
        .collect();
    Measured {
        value: median(&seconds),
        seconds,
    }
}

/// Returns by how much a counter grew; `None` where it is not known, or was reset.
fn growth(first: Option<u64>, last: Option<u64>) -> Option<f64> {
    Some(last?.checked_sub(first?)? as f64)
}

/// Returns how many seconds lie between two moments.
fn passed(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(growth(Some(first.unix_us), Some(last.unix_us))?, 1e6)
}

fn ratio(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| value / of)
}

fn commands(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(growth(first.commands, last.commands)?, passed(first, last)?)
}

fn cpu_seconds(first: &Moment, last: &Moment) -> Option<f64> {
    Some(growth(first.cpu_us, last.cpu_us)? / 1e6)
}

fn cpu_per_command(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(
        cpu_seconds(first, last)?,
        growth(first.commands, last.commands)?,
    )
}

fn cpu(first: &Moment, last: &Moment) -> Option<f64> {
    ratio(cpu_seconds(first, last)?, passed(first, last)?)
}

/// Returns for how long calls were observed, seconds. Those that were not are in no counter.
fn observed(first: &Moment, last: &Moment) -> Option<f64> {
    Some(growth(Some(first.observed_us), Some(last.observed_us))? / 1e6)
}

fn evicting(first: &Moment, last: &Moment) -> Option<f64> {
    let evicting = growth(Some(first.evicting_us), Some(last.evicting_us))? / 1e6;
    ratio(evicting, observed(first, last)?)
}

fn calls(first: &Moment, last: &Moment) -> Option<f64> {
    let calls = growth(Some(first.evicting_calls), Some(last.evicting_calls))?;
    ratio(calls, observed(first, last)?)
}

fn evicted(first: &Moment, last: &Moment) -> Option<f64> {
    let keys = growth(first.evicted_keys, last.evicted_keys)?;
    ratio(keys, passed(first, last)?)
}

/// Returns for how long the server was stalled in the whole record, seconds.
fn stalled(record: &Record) -> Option<f64> {
    let (first, last) = (record.moments.first()?, record.moments.last()?);
    Some(growth(first.stalled_us, last.stalled_us)? / 1e6)
}

/// Returns the highest value since the beginning of the burst.
fn highest(record: &Record, of: fn(&Moment) -> Option<f64>) -> Option<f64> {
    let moments = record.moments.iter();
    let since = moments.filter(|moment| moment.unix_us >= record.began_us);
    since.filter_map(of).reduce(f64::max)
}

/// Returns a quantile of the durations of all evicting calls, and of those of each second.
fn quantile(record: &Record, quantile: f64) -> Measured {
    let all = record.latencies.iter();
    let of_second = |second: &LatencySecond| quantile_of(&second.counts, quantile);
    let seconds = all.clone().filter_map(of_second).collect();
    let counts: Vec<_> = all
        .flat_map(|second| second.counts.iter().copied())
        .collect();
    Measured {
        value: quantile_of(&counts, quantile),
        seconds,
    }
}

/// Returns the quantile of durations that were counted by bucket, seconds: between the bounds of its bucket it is taken to
/// lie as far as its rank does among those in it, as Prometheus does. Above the last bound it is that.
fn quantile_of(counts: &[(u16, u64)], quantile: f64) -> Option<f64> {
    let mut counts = counts.to_vec();
    counts.sort_unstable();
    let all: f64 = counts.iter().map(|(_, count)| *count as f64).sum();
    let rank = quantile * all;
    let mut below = 0.0;
    for (bucket, count) in counts {
        let (bucket, count) = (usize::from(bucket), count as f64);
        if count > 0.0 && below + count >= rank {
            let lower = bucket
                .checked_sub(1)
                .and_then(|lower| bounds::INNER_NS.bound(lower));
            let lower = lower.unwrap_or(0) as f64;
            let upper = bounds::INNER_NS
                .bound(bucket)
                .map_or(lower, |upper| upper as f64);
            return Some((lower + (upper - lower) * (rank - below) / count) / 1e9);
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
        let measure = MEASURES.iter().find(|measure| measure.name == name);
        let measured = measure.map(|measure| (measure.of)(record));
        measured
            .and_then(|measured| measured.value)
            .unwrap_or(f64::NAN)
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
            let is_right = (measured / expected - 1.0).abs() < 0.01;
            assert!(is_right, "{name}: {measured}, not {expected}");
        }
    }

    #[test]
    fn quantiles_are_interpolated_in_their_bucket() {
        let lower = bounds::INNER_NS
            .bound(19)
            .map_or(0.0, |bound| bound as f64 / 1e9);
        let upper = bounds::INNER_NS
            .bound(20)
            .map_or(0.0, |bound| bound as f64 / 1e9);
        let middle = quantile_of(&[(20, 100)], 0.5);
        assert!(middle.is_some_and(|middle| (middle - (lower + upper) / 2.0).abs() < 1e-9));
        assert_eq!(quantile_of(&[], 0.5), None);
        let last = bounds::INNER_NS.buckets() as u16 - 1;
        assert_eq!(quantile_of(&[(last, 1)], 0.99), Some(1.0));
    }

    #[test]
    fn a_counter_that_was_reset_gives_no_rate() {
        let mut record = burst_record();
        for moment in &mut record.moments {
            moment.commands = Some(10_000_000 - moment.unix_us / 1_000_000 % 100);
        }
        assert!(value("CPU per command before", &record).is_nan());
    }
}
