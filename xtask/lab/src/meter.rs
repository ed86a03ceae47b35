//! Counts the generator's requests, and tells the counts ten times a second and latencies every second.

use std::time::{Duration, Instant};

use anyhow::Result;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::{
    clock::Clock,
    counts::{Load, Second, Totals},
    record::Line,
    resp::Reply,
};

/// From one [`Load`] to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// From one [`Second`] to the next.
const SECOND: Duration = Duration::from_secs(1);

/// The longest latency that is measured: 10 minutes, in microseconds.
const LONGEST: u64 = 600_000_000;

/// The counts, and their course in the current interval and second.
pub struct Meter {
    /// The counts.
    pub totals: Totals,
    latencies: Histogram<u64>,
    interval_begun: Instant,
    interval_peak: u64,
    second_begun: Instant,
    second_peak: u64,
    second_before: Totals,
    second_cpu: f64,
}

impl Meter {
    /// Begins with nothing counted.
    pub fn new() -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            totals: Totals::default(),
            latencies: Histogram::new_with_max(LONGEST, 3)?,
            interval_begun: now,
            interval_peak: 0,
            second_begun: now,
            second_peak: 0,
            second_before: Totals::default(),
            second_cpu: thread_cpu(),
        })
    }

    /// Begins an interval and a second, and forgets unfinished ones.
    pub fn begin(&mut self, now: Instant) {
        self.interval_begun = now;
        self.interval_peak = self.totals.backlog();
        self.begin_second(now);
    }

    /// Counts a reply to a request that was due at `due`.
    pub fn answered(&mut self, reply: Reply, due: Instant, now: Instant) {
        self.totals.answered += 1;
        self.totals.errors += u64::from(reply == Reply::Error);
        let latency = now.saturating_duration_since(due).as_micros();
        self.latencies
            .saturating_record(u64::try_from(latency).unwrap_or(LONGEST));
    }

    /// Notes the backlog, and tells of the interval and the second that are complete by `now`. The generator calls
    /// this often.
    pub fn tick(&mut self, now: Instant, clock: &Clock, tell: &mut impl FnMut(Line)) {
        self.interval_peak = self.interval_peak.max(self.totals.backlog());
        if now.duration_since(self.interval_begun) < INTERVAL {
            return;
        }
        let totals = self.totals;
        tell(Line::Load(Load {
            at: clock.unix(now),
            totals,
            backlog: totals.backlog(),
            backlog_peak: self.interval_peak,
        }));
        self.second_peak = self.second_peak.max(self.interval_peak);
        self.interval_peak = totals.backlog();
        self.interval_begun = now;
        if now.duration_since(self.second_begun) >= SECOND {
            tell(Line::Second(self.second(now, clock)));
            self.begin_second(now);
        }
    }

    fn second(&self, now: Instant, clock: &Clock) -> Second {
        let seconds = now.duration_since(self.second_begun).as_secs_f64();
        let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
        let latency = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e6;
        let (totals, before) = (&self.totals, &self.second_before);
        Second {
            at: clock.unix(now),
            due_per_second: rate(totals.due, before.due),
            answered_per_second: rate(totals.answered, before.answered),
            errors_per_second: rate(totals.errors, before.errors),
            bytes_per_second: rate(totals.bytes_received, before.bytes_received),
            latency_p50: latency(0.5),
            latency_p90: latency(0.9),
            latency_p99: latency(0.99),
            latency_max: self.latencies.max() as f64 / 1e6,
            backlog: totals.backlog(),
            backlog_peak: self.second_peak,
            waiting: totals.waiting(),
            generator_cpu: (thread_cpu() - self.second_cpu) / seconds,
        }
    }

    fn begin_second(&mut self, now: Instant) {
        self.second_begun = now;
        self.second_peak = self.totals.backlog();
        self.second_before = self.totals;
        self.second_cpu = thread_cpu();
        self.latencies.reset();
    }
}

/// Returns the CPU time of this thread, in seconds.
fn thread_cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_of_a_second_count_from_when_requests_were_due() -> Result<()> {
        let clock = Clock::new();
        let mut meter = Meter::new()?;
        let begun = Instant::now();
        meter.begin(begun);
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut lines = Vec::new();
        for step in 1..=20 {
            let now = at(step * 100);
            meter.totals.due += 10;
            meter.tick(now - Duration::from_millis(1), &clock, &mut |_| {});
            for _ in 0..9 {
                meter.answered(Reply::Ok, now - Duration::from_millis(50), now);
            }
            meter.answered(Reply::Error, now - Duration::from_millis(500), now);
            meter.tick(now, &clock, &mut |line| lines.push(line));
        }
        let loads = lines.iter().filter(|line| matches!(line, Line::Load(_)));
        assert_eq!(loads.count(), 20);
        let seconds: Vec<_> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Second(second) => Some(second),
                _ => None,
            })
            .collect();
        assert_eq!(seconds.len(), 2);
        let last = seconds[1];
        assert_eq!(last.answered_per_second, 100.0);
        assert_eq!(last.errors_per_second, 10.0);
        assert_eq!(last.backlog, 0);
        assert_eq!(last.backlog_peak, 10);
        assert!((last.latency_p50 - 0.05).abs() < 0.001);
        assert!((last.latency_max - 0.5).abs() < 0.001);
        Ok(())
    }
}
