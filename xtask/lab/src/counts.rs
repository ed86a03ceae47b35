//! Counts the generator's requests, and reports the counts ten times a second.

use std::time::{Duration, Instant};

use anyhow::Result;
use evictscope_testkit::text::percent;
use evictscope_testkit::threads::SchedulerTimes;
use evictscope_testkit::wait::unix_time;
use hdrhistogram::Histogram;

/// From one [`LoadCounts`] to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// A generator that comes to a request later than this is behind its pace. Its timer alone makes it late by 1 ms, and
/// by more beside the threads of the recorder.
const LATE: Duration = Duration::from_millis(10);

/// The longest latency that is measured: 10 minutes, in microseconds.
const LONGEST: u64 = 600_000_000;

/// The largest share of the time that may lack something. On two idle cores the main thread waited for 1 to 3 % of a
/// phase.
const MOST_LACKED: f64 = 0.05;

/// Counts since the generator connected.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub due: u64,
    /// Requests handed to a connection's socket.
    pub sent: u64,
    pub answered: u64,
    pub errors: u64,
}

impl Totals {
    /// Returns the backlog: requests that are due and not answered, sent or not.
    pub fn backlog(&self) -> u64 {
        self.due - self.answered
    }
}

/// The counts at one time, and the times of the server's main thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadCounts {
    /// When, in seconds since 1970.
    pub at: f64,
    pub totals: Totals,
    /// The 99th percentile of the latencies since the load began, from when a request was due to its reply, in seconds.
    pub latency_p99: f64,
    pub latency_max: f64,
    /// Seconds in which the generator had not come to requests that were due, since it connected.
    pub behind: f64,
    /// Seconds for which the main thread was on a CPU, according to the kernel's scheduler.
    pub running: f64,
    /// Seconds for which it waited for a CPU.
    pub waiting: f64,
}

impl LoadCounts {
    /// Says what was missing since an earlier count, if that was too much: a CPU for the server's main thread, or a
    /// load that keeps its pace. Without these, a burst is of another kind, or there is none, and that is not the
    /// agent's fault.
    pub fn disturbance_since(&self, earlier: &Self) -> Option<String> {
        let lacked = [
            (self.waiting - earlier.waiting, "the server's main thread waited for a CPU"),
            (self.behind - earlier.behind, "the load was behind its pace"),
        ];
        let shares = lacked.map(|(seconds, text)| (seconds / (self.at - earlier.at), text));
        let most = shares.iter().filter(|(share, _)| *share > MOST_LACKED);
        let texts = Vec::from_iter(most.map(|(share, text)| format!("{text} for {} of the time", percent(*share))));
        (!texts.is_empty()).then(|| texts.join(", and "))
    }
}

/// The counts, and their course since the last [`LoadCounts`].
pub struct Meter {
    pub totals: Totals,
    behind: Duration,
    /// When the generator last came to a request for which it was not late already.
    came: Instant,
    latencies: Histogram<u64>,
    told: Instant,
    pid: u32,
}

impl Meter {
    pub fn new(pid: u32) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            totals: Totals::default(),
            behind: Duration::ZERO,
            came: now,
            latencies: Histogram::new_with_max(LONGEST, 3)?,
            told: now,
            pid,
        })
    }

    pub fn begin(&mut self, now: Instant) {
        self.told = now;
        self.latencies.reset();
    }

    /// Counts a request to which the generator comes now. Others that fell due while it waited were late for the same
    /// reason.
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

    pub fn answered(&mut self, is_error: bool, due: Instant, now: Instant) {
        self.totals.answered += 1;
        self.totals.errors += u64::from(is_error);
        let latency = now.saturating_duration_since(due).as_micros();
        self.latencies.saturating_record(u64::try_from(latency).unwrap_or(LONGEST));
    }

    /// Returns the counts when an interval is complete by `now`. The generator calls this often.
    pub fn tick(&mut self, now: Instant) -> Result<Option<LoadCounts>> {
        if now.duration_since(self.told) < INTERVAL {
            return Ok(None);
        }
        self.told = now;
        let main_thread = SchedulerTimes::of(self.pid, self.pid)?;
        Ok(Some(LoadCounts {
            at: unix_time()?,
            totals: self.totals,
            latency_p99: self.latencies.value_at_quantile(0.99) as f64 / 1e6,
            latency_max: self.latencies.max() as f64 / 1e6,
            behind: self.behind.as_secs_f64(),
            running: main_thread.running.as_secs_f64(),
            waiting: main_thread.waiting.as_secs_f64(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_count_from_when_requests_were_due() -> Result<()> {
        let mut meter = Meter::new(std::process::id())?;
        let begun = Instant::now();
        meter.begin(begun);
        let mut loads = Vec::new();
        for step in 1..=20 {
            let now = begun + step * INTERVAL;
            meter.totals.due += 10;
            loads.extend(meter.tick(now - Duration::from_millis(1))?);
            for late in [50, 50, 50, 50, 50, 50, 50, 50, 50, 500] {
                let due = now - Duration::from_millis(late);
                meter.answered(late > 50, due, now);
            }
            loads.extend(meter.tick(now)?);
        }
        assert_eq!(loads.len(), 20);
        let last = loads[19];
        assert_eq!((last.totals.backlog(), last.totals.errors), (0, 20));
        assert!((last.latency_max - 0.5).abs() < 0.001);
        Ok(())
    }
}
