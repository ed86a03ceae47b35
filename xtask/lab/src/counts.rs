//! Counts the generator's requests, and tells the counts ten times a second and latencies every second.

use std::time::{Duration, Instant};

use anyhow::Result;
use evictscope_testkit::clock::unix_time;
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::resp::Reply;

/// From one [`Load`] to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// From one [`Second`] to the next.
const SECOND: Duration = Duration::from_secs(1);

/// A generator that comes to a request later than this is behind its pace. Its timer alone makes it late by 1 ms, and by more
/// beside the threads of the recorder.
const LATE: Duration = Duration::from_millis(10);

/// The longest latency that is measured: 10 minutes, in microseconds.
const LONGEST: u64 = 600_000_000;

/// Counts since the generator connected.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Requests that fell due.
    pub due: u64,
    /// Requests handed to a connection's socket.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Requests whose connection the server closed before it replied.
    pub lost: u64,
    /// Connections that the server closed.
    pub hung_up: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
}

impl Totals {
    /// Returns the backlog: requests that are due and neither answered nor lost, sent or not.
    pub fn backlog(&self) -> u64 {
        self.due - self.answered - self.lost
    }

    /// Returns how many requests are due and not sent.
    pub fn waiting(&self) -> u64 {
        self.due - self.sent
    }
}

/// The counts at one time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Load {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The counts.
    #[serde(flatten)]
    pub totals: Totals,
    /// Requests due and not answered.
    pub backlog: u64,
    /// The highest backlog since the line before.
    pub backlog_peak: u64,
    /// Seconds in which the generator had not come to requests that were due, since it connected.
    pub behind: f64,
}

/// A second of the generator. Latencies are in seconds, from when a request was due to its reply.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Second {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// Requests that fell due.
    pub due_per_second: f64,
    /// Replies.
    pub answered_per_second: f64,
    /// Replies that were errors.
    pub errors_per_second: f64,
    /// Of the replies of this second.
    pub latency_p50: f64,
    /// Of the replies of this second.
    pub latency_p99: f64,
    /// Of the replies of this second.
    pub latency_max: f64,
    /// Requests due and not answered, at the end.
    pub backlog: u64,
    /// The highest backlog within.
    pub backlog_peak: u64,
    /// CPU time of the generator's thread, in cores: near 1, the load is not what it claims to be.
    pub generator_cpu: f64,
}

/// The counts, and their course in the current interval and second.
pub struct Meter {
    /// The counts.
    pub totals: Totals,
    behind: Duration,
    /// When the generator last came to a request for which it was not late already.
    came: Instant,
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
            behind: Duration::ZERO,
            came: now,
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

    /// Counts a request to which the generator comes now. Others that fell due while it waited were late for the same reason.
    pub fn due(&mut self, due: Instant, now: Instant) {
        self.totals.due += 1;
        if due < self.came {
            return;
        }
        self.came = now;
        let late = now.saturating_duration_since(due);
        if late > LATE {
            self.behind += late;
        }
    }

    /// Counts a reply to a request that was due at `due`.
    pub fn answered(&mut self, reply: Reply, due: Instant, now: Instant) {
        self.totals.answered += 1;
        self.totals.errors += u64::from(reply == Reply::Error);
        let latency = now.saturating_duration_since(due).as_micros();
        self.latencies
            .saturating_record(u64::try_from(latency).unwrap_or(LONGEST));
    }

    /// Notes the backlog, and returns the counts when an interval is complete by `now`, with the second that is. The
    /// generator calls this often.
    pub fn tick(&mut self, now: Instant) -> Result<Option<(Load, Option<Second>)>> {
        self.interval_peak = self.interval_peak.max(self.totals.backlog());
        if now.duration_since(self.interval_begun) < INTERVAL {
            return Ok(None);
        }
        let (at, totals) = (unix_time()?, self.totals);
        let load = Load {
            at,
            totals,
            backlog: totals.backlog(),
            backlog_peak: self.interval_peak,
            behind: self.behind.as_secs_f64(),
        };
        self.second_peak = self.second_peak.max(self.interval_peak);
        self.interval_peak = totals.backlog();
        self.interval_begun = now;
        let mut second = None;
        if now.duration_since(self.second_begun) >= SECOND {
            second = Some(self.second(now, at));
            self.begin_second(now);
        }
        Ok(Some((load, second)))
    }

    fn second(&self, now: Instant, at: f64) -> Second {
        let seconds = now.duration_since(self.second_begun).as_secs_f64();
        let rate = |now: u64, before: u64| (now - before) as f64 / seconds;
        let latency = |quantile| self.latencies.value_at_quantile(quantile) as f64 / 1e6;
        let (totals, before) = (&self.totals, &self.second_before);
        Second {
            at,
            due_per_second: rate(totals.due, before.due),
            answered_per_second: rate(totals.answered, before.answered),
            errors_per_second: rate(totals.errors, before.errors),
            latency_p50: latency(0.5),
            latency_p99: latency(0.99),
            latency_max: self.latencies.max() as f64 / 1e6,
            backlog: totals.backlog(),
            backlog_peak: self.second_peak,
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
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn latencies_of_a_second_count_from_when_requests_were_due() -> Result<()> {
        let mut meter = Meter::new()?;
        let begun = Instant::now();
        meter.begin(begun);
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut loads = 0;
        let mut seconds = Vec::new();
        for step in 1..=20 {
            let now = at(step * 100);
            meter.totals.due += 10;
            meter.tick(now - Duration::from_millis(1))?;
            for _ in 0..9 {
                meter.answered(Reply::Ok, now - Duration::from_millis(50), now);
            }
            meter.answered(Reply::Error, now - Duration::from_millis(500), now);
            let (_, second) = meter.tick(now)?.context("the interval is complete")?;
            loads += 1;
            seconds.extend(second);
        }
        assert_eq!(loads, 20);
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
