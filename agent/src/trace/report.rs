//! Says what a trace has seen, as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use evictscope_abi::{SlowCall, TRACE_BUCKETS, TRACE_THREADS, trace_bound};
use evictscope_probes::TraceCounts;
use evictscope_records::text::count;
use jiff::Timestamp;

use super::subject::Cycle;
use crate::text::histogram;

/// The length of a histogram's bar, in characters.
const BAR: usize = 40;

/// Returns a duration in nanoseconds with its unit.
pub fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 999.5 => format!("{ns:.0} ns"),
        _ if ns < 99_950.0 => format!("{:.1} µs", ns / 1e3),
        _ if ns < 999_500.0 => format!("{:.0} µs", ns / 1e3),
        _ if ns < 99_950_000.0 => format!("{:.2} ms", ns / 1e6),
        _ if ns < 999_500_000.0 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

/// Returns a share in percent, with about two significant digits.
pub fn share(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 0.005 => format!("{percent:.4} %"),
        percent if percent < 0.995 => format!("{percent:.2} %"),
        percent if percent < 99.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// The time of day of a moment of the monotonic clock, in UTC.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The time of day at which the monotonic clock was 0, since 1970.
    pub zero: Duration,
}

impl Clock {
    /// Returns the time of day in this `strftime` format.
    fn time(self, at: Duration, format: &str) -> String {
        let unix = self.zero + at;
        let time = Timestamp::from_nanosecond(unix.as_nanos().cast_signed());
        time.map_or_else(|_| "-".to_owned(), |time| time.strftime(format).to_string())
    }
}

/// What was counted in a second of the trace.
pub struct Second<'a> {
    /// When it ended, monotonic time.
    pub at: Duration,
    /// How long it was.
    pub length: Duration,
    /// For how long of it calls were observed.
    pub observed: Duration,
    /// The counts before it.
    pub before: &'a TraceCounts,
    /// The counts after it.
    pub now: &'a TraceCounts,
}

impl Second<'_> {
    /// Returns the calls that ended in it as a histogram. If it was not observed all the time, the lines have calls per
    /// observed second.
    pub fn text(&self, clock: Clock) -> String {
        let time = clock.time(self.at, "%H:%M:%S");
        let calls = self.now.ended() - self.before.ended();
        let part = self.observed.as_secs_f64() / self.length.as_secs_f64();
        if self.observed.is_zero() {
            return format!("{time}  not observed, to stay within the budget\n\n");
        }
        let mut said = format!("{time}  {}", in_number(calls, "call"));
        let mut per = 1.0;
        if part < 0.995 {
            per = self.observed.as_secs_f64();
            let rate = count(calls as f64 / per);
            // Writing to a String cannot fail.
            let _ = write!(said, " in the {} of this second that was observed: {rate}/s", share(part));
        }
        said.push('\n');
        if calls > 0 {
            let mut rates = Vec::new();
            let counts = self.now.durations.iter().zip(&self.before.durations);
            for (bucket, (now, before)) in counts.enumerate() {
                let bound = trace_bound(bucket).map_or(f64::INFINITY, |bound| bound as f64);
                rates.push((bound, (now - before) as f64 / per));
            }
            for line in histogram(&rates, duration, BAR) {
                let _ = writeln!(said, "{line}");
            }
        }
        said.push('\n');
        said
    }
}

/// Returns a number of things.
fn in_number(count: u64, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns the line that names the columns of [`slow_call`].
pub fn slow_calls_head(cycles: &[Cycle]) -> String {
    let ran = match cycles {
        [] => "",
        _ => "  ran inside",
    };
    format!("began (UTC)         duration  thread{ran}\n")
}

/// Returns the line of a slow call in process `pid`.
pub fn slow_call(call: &SlowCall, pid: u32, cycles: &[Cycle], clock: Clock) -> String {
    let begun = Duration::from_nanos(call.ended_ns.saturating_sub(call.duration_ns));
    let time = clock.time(begun, "%H:%M:%S%.6f");
    let thread = if call.tid == pid { "main".to_owned() } else { call.tid.to_string() };
    let ran = cycles.iter().filter(|own| call.ran & (1 << own.number) != 0);
    let ran: Vec<&str> = ran.map(|own| own.name).collect();
    let ran = match (cycles, ran.as_slice()) {
        ([], _) => String::new(),
        (_, []) => "-".to_owned(),
        (_, ran) => ran.join(", "),
    };
    let line = format!("{time}  {:>12}  {thread:<6}  {ran}", duration(call.duration_ns as f64));
    line.trim_end().to_owned() + "\n"
}

/// What a whole trace has counted.
pub struct Summary<'a> {
    /// The function.
    pub function: String,
    /// How long the trace took.
    pub length: Duration,
    /// For how long of that calls were observed.
    pub observed: Duration,
    /// What was counted.
    pub counts: &'a TraceCounts,
    /// How many calls had begun and not ended.
    pub unfinished: u64,
    /// The time that slow calls exceed, and how many were shown, if they were asked for.
    pub slow: Option<(Duration, u64)>,
    /// What one call costs, in nanoseconds.
    pub call_ns: f64,
    /// What all of it has cost, as a share of a thread's time.
    pub cost: f64,
    /// The share that it might cost.
    pub budget: f64,
}

impl Summary<'_> {
    /// Returns it as text.
    pub fn text(&self) -> String {
        let (counts, calls) = (self.counts, self.counts.ended());
        let part = self.observed.as_secs_f64() / self.length.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut said = format!("{}: {} in {:.1} s", self.function, in_number(calls, "call"), self.length.as_secs_f64());
        if part < 0.995 {
            let rate = calls as f64 / self.observed.as_secs_f64().max(f64::MIN_POSITIVE);
            said += &format!(
                ", of which {:.2} s ({}) were observed: {} calls per observed second",
                self.observed.as_secs_f64(),
                share(part),
                count(rate)
            );
        }
        said.push('\n');
        let quantile = |part| quantile(&counts.durations, part);
        if let (Some(median), Some(p99)) = (quantile(0.5), quantile(0.99)) {
            let longest = counts.longest_ns as f64;
            let of = if part < 0.995 {
                format!(" (of the {} of the time that was observed)", share(part))
            } else {
                String::new()
            };
            said += &format!(
                "  median {}, p99 {}, longest {}, mean {}{of}\n",
                duration(median.min(longest)),
                duration(p99.min(longest)),
                duration(longest),
                duration(counts.sum_ns as f64 / calls as f64),
            );
        }
        if let Some((slower, shown)) = self.slow.filter(|_| part < 0.995) {
            said += &format!(
                "  {} took longer than {}, in the {} of the time that was observed: those that began in the rest are missing\n",
                in_number(shown, "call"),
                duration(slower.as_nanos() as f64),
                share(part)
            );
        }
        said += &format!(
            "  cost   {} each call, {} of one thread's time, of {} allowed\n",
            duration(self.call_ns),
            share(self.cost),
            share(self.budget)
        );
        for (count, what) in [
            (counts.nested, "that the function made to itself; their time is in the outermost call"),
            (self.unfinished, "had not returned when the probes were taken off"),
            (counts.lost, "not seen to return: left by a longjmp, or by a jump to the function's own beginning"),
            (counts.slow_lost, "not shown above, because slow calls came too fast; they are counted"),
        ] {
            if count > 0 {
                said += &format!("  {} {what}\n", in_number(count, "call"));
            }
        }
        if counts.is_crowded {
            said += &format!("  the calls of some threads are missing: there are more than {TRACE_THREADS} threads\n");
        }
        if calls == 0 && counts.entry_hits == 0 {
            said += "  it was not called, or the compiler has inlined it\n";
        }
        said
    }
}

/// Returns the duration below which this part of the calls is, as far as the buckets show: values are assumed to be
/// spread evenly within a bucket. Returns `None` without calls.
fn quantile(durations: &[u64; TRACE_BUCKETS], part: f64) -> Option<f64> {
    let calls: u64 = durations.iter().sum();
    let wanted = part * calls as f64;
    let mut below = 0.0;
    for (bucket, count) in durations.iter().enumerate() {
        let count = *count as f64;
        if count > 0.0 && below + count >= wanted {
            let low = bucket.checked_sub(1).and_then(trace_bound).unwrap_or(0) as f64;
            let high = trace_bound(bucket).map_or(low, |bound| bound as f64);
            return Some(low + (high - low) * (wanted - below) / count);
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests;
