//! Says what a trace has seen, as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use evictscope_abi::{Histogram, TRACE_BUCKETS, TRACE_THREADS, TracedCall, trace_bound};
use evictscope_probes::TraceCounts;
use evictscope_records::compare;
use evictscope_records::text::count;
use jiff::Timestamp;

use super::subject::InnerCycle;
use crate::text::histogram;

/// The length of a histogram's bar, in characters.
const BAR: usize = 40;

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

/// Returns the time of day, in UTC, of a moment since 1970, in this `strftime` format.
fn time_of_day(at: Duration, format: &str) -> String {
    let time = Timestamp::from_nanosecond(at.as_nanos().cast_signed());
    time.map_or_else(|_| "-".to_owned(), |time| time.strftime(format).to_string())
}

/// What was counted in a second of the trace.
pub struct Second<'a> {
    /// When it ended, since 1970.
    pub at: Duration,
    pub length: Duration,
    /// For how long of it calls were observed.
    pub observed: Duration,
    pub before: &'a TraceCounts,
    pub now: &'a TraceCounts,
}

impl Second<'_> {
    /// Returns the calls that ended in it as a histogram. If it was not observed all the time, the lines have calls per
    /// observed second.
    pub fn text(&self) -> String {
        let time = time_of_day(self.at, "%H:%M:%S");
        let calls = self.now.ended() - self.before.ended();
        let part = self.observed.as_secs_f64() / self.length.as_secs_f64();
        if self.observed.is_zero() {
            return format!("{time}  not observed, to stay within the budget\n\n");
        }
        let mut text = format!("{time}  {}", in_number(calls, "call"));
        let mut per = 1.0;
        if part < 0.995 {
            per = self.observed.as_secs_f64();
            let rate = count(calls as f64 / per);
            // Writing to a String cannot fail.
            let _ = write!(text, " in the {} of this second that was observed: {rate}/s", share(part));
        }
        text.push('\n');
        if calls > 0 {
            let counts = self.now.calls.durations.counts.iter().zip(&self.before.calls.durations.counts).enumerate();
            let rate = |(bucket, (now, before)): (usize, (&u64, &u64))| {
                (trace_bound(bucket).map_or(f64::INFINITY, |bound| bound as f64), (now - before) as f64 / per)
            };
            for line in histogram(&counts.map(rate).collect::<Vec<_>>(), duration, BAR) {
                let _ = writeln!(text, "{line}");
            }
        }
        text.push('\n');
        text
    }
}

fn in_number(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Returns the line that names the columns of [`slow_call`].
pub fn slow_calls_head(cycles: &[InnerCycle]) -> String {
    let ran = if cycles.is_empty() { "" } else { "  ran inside" };
    format!("began (UTC)         duration  thread{ran}\n")
}

/// Returns the line of a slow call; the monotonic clock was 0 at `zero`, since 1970.
pub fn slow_call(call: &TracedCall, pid: u32, cycles: &[InnerCycle], zero: Duration) -> String {
    let began = zero + Duration::from_nanos(call.ended_ns.saturating_sub(call.duration_ns));
    let time = time_of_day(began, "%H:%M:%S%.6f");
    let thread = if call.tid == pid { "main".to_owned() } else { call.tid.to_string() };
    let names = cycles.iter().filter(|cycle| call.ran & (1 << cycle.number) != 0).map(|cycle| cycle.name);
    let ran = match names.collect::<Vec<_>>().as_slice() {
        [] if cycles.is_empty() => String::new(),
        [] => "-".to_owned(),
        names => names.join(", "),
    };
    format!("{time}  {:>12}  {thread:<6}  {ran}", duration(call.duration_ns as f64)).trim_end().to_owned() + "\n"
}

/// What a whole trace has counted.
pub struct TraceSummary<'a> {
    pub function: String,
    pub length: Duration,
    /// For how long of that calls were observed.
    pub observed: Duration,
    pub counts: &'a TraceCounts,
    /// Calls that had begun and not ended.
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

impl TraceSummary<'_> {
    pub fn text(&self) -> String {
        let (counts, calls) = (self.counts, self.counts.ended());
        let part = self.observed.as_secs_f64() / self.length.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut text = format!("{}: {} in {:.1} s", self.function, in_number(calls, "call"), self.length.as_secs_f64());
        if part < 0.995 {
            let rate = calls as f64 / self.observed.as_secs_f64().max(f64::MIN_POSITIVE);
            text += &format!(
                ", of which {:.2} s ({}) were observed: {} calls per observed second",
                self.observed.as_secs_f64(),
                share(part),
                count(rate)
            );
        }
        text.push('\n');
        let quantile = |part| quantile(&counts.calls.durations, part);
        if let (Some(median), Some(p99)) = (quantile(0.5), quantile(0.99)) {
            let longest = counts.calls.longest_ns as f64;
            let of = if part < 0.995 {
                format!(" (of the {} of the time that was observed)", share(part))
            } else {
                String::new()
            };
            text += &format!(
                "  median {}, p99 {}, longest {}, mean {}{of}\n",
                duration(median.min(longest)),
                duration(p99.min(longest)),
                duration(longest),
                duration(counts.calls.durations.sum as f64 / calls as f64),
            );
        }
        if let Some((slower, shown)) = self.slow.filter(|_| part < 0.995) {
            text += &format!(
                "  {} took longer than {}, in the {} of the time that was observed: those that began in the rest are missing\n",
                in_number(shown, "call"),
                duration(slower.as_nanos() as f64),
                share(part)
            );
        }
        text += &format!(
            "  cost   {} each call, {} of one thread's time, of {} allowed\n",
            duration(self.call_ns),
            share(self.cost),
            share(self.budget)
        );
        for (count, what) in [
            (counts.calls.nested, "that the function made to itself; their time is in the outermost call"),
            (self.unfinished, "had not returned when the probes were taken off"),
            (counts.calls.lost, "not seen to return: left by a longjmp, or by a jump to the function's own beginning"),
            (counts.calls.slow_lost, "not shown above, because slow calls came too fast; they are counted"),
        ] {
            if count > 0 {
                text += &format!("  {} {what}\n", in_number(count, "call"));
            }
        }
        if counts.is_crowded {
            text += &format!("  the calls of some threads are missing: there are more than {TRACE_THREADS} threads\n");
        }
        if calls == 0 && counts.calls.entry_hits == 0 {
            text += "  it was not called, or the compiler has inlined it\n";
        }
        text
    }
}

/// Returns the duration below which this part of the calls is, as far as the buckets show; `None` without calls.
fn quantile(durations: &Histogram<TRACE_BUCKETS>, part: f64) -> Option<f64> {
    compare::quantile(durations.counts.iter().copied().enumerate(), trace_bound, part)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_abi::{TracedCall, trace_bucket};
    use evictscope_probes::TraceCounts;

    use super::{InnerCycle, Second, TraceSummary, duration, quantile, share, slow_call};

    fn counts(durations: &[(u64, u64)]) -> TraceCounts {
        let mut counts = TraceCounts::default();
        for (ns, calls) in durations {
            counts.calls.durations.counts[trace_bucket(*ns)] += calls;
            counts.calls.durations.sum += ns * calls;
            counts.calls.longest_ns = counts.calls.longest_ns.max(*ns);
        }
        counts
    }

    #[test]
    fn numbers_have_their_units() {
        let durations = [64.0, 1_500.0, 250_000.0, 2_340_000.0, 3e9].map(duration);
        assert_eq!(durations, ["64 ns", "1.5 µs", "250 µs", "2.34 ms", "3.00 s"]);
        assert_eq!([0.00001, 0.0003, 0.125, 1.0].map(share), ["0.0010 %", "0.03 %", "12.5 %", "100 %"]);
    }

    #[test]
    fn a_quantile_is_in_the_bucket_of_the_call() {
        let counts = counts(&[(1_000, 98), (70_000, 2)]);
        let of = |part| quantile(&counts.calls.durations, part).map(|ns| trace_bucket(ns as u64));
        assert_eq!(of(0.5), Some(trace_bucket(1_000)));
        assert_eq!(of(0.99), Some(trace_bucket(70_000)));
        assert_eq!(quantile(&TraceCounts::default().calls.durations, 0.5), None);
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
            .text()
        };
        let all = [Duration::from_secs(1), Duration::from_millis(100), Duration::ZERO].map(second);
        insta::assert_snapshot!(all.concat());
    }

    #[test]
    fn a_slow_call_says_what_ran_inside() {
        let cycles = [(0, "eviction"), (1, "expire")].map(|(number, name)| InnerCycle { number, name, begin: None });
        let line = |ran, tid, cycles: &[InnerCycle]| {
            let call = TracedCall { ended_ns: 3_001_500_000, duration_ns: 1_500_000, tid, ran };
            slow_call(&call, 7, cycles, Duration::ZERO)
        };
        assert_eq!(line(3, 7, &cycles), "00:00:03.000000       1.50 ms  main    eviction, expire\n");
        assert_eq!(line(0, 8, &cycles), "00:00:03.000000       1.50 ms  8       -\n");
        assert_eq!(line(0, 7, &[]), "00:00:03.000000       1.50 ms  main\n");
    }

    #[test]
    fn a_summary_says_what_is_missing() {
        let mut counts = counts(&[(1_000, 100)]);
        counts.calls.nested = 3;
        let summary = TraceSummary {
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
        insta::assert_snapshot!(summary);
    }
}
