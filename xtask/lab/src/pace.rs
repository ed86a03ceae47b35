//! When requests are due, at a rate that does not depend on earlier ones, and counts of them, ten times a second. The
//! rate is the one at which the server's main thread is as busy as wanted.
//!
//! What a command costs depends on the machine, on what runs beside it, on the rate itself (a round of the event loop
//! with more requests takes less time for each) and on how full the server is. So the rate is set from the CPU time
//! that it takes, look after look.

use std::sync::atomic::{AtomicU64, Ordering};
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

/// The longest pause of an idle generator, so that it notices its end and a new rate.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Requests a second, which another thread may change.
pub struct Rate(AtomicU64);

impl Rate {
    pub fn new(rate: f64) -> Self {
        Self(AtomicU64::new(rate.to_bits()))
    }

    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub fn set(&self, rate: f64) {
        self.0.store(rate.to_bits(), Ordering::Relaxed);
    }

    /// Returns the time between two requests, or `None` if there are none.
    fn interval(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(1.0 / self.get()).ok()
    }
}

/// Requests as they fall due, evenly spaced: the open loop.
pub struct Schedule<'a> {
    rate: &'a Rate,
    next: Instant,
}

impl<'a> Schedule<'a> {
    /// Begins with a request that is due at `begun`.
    pub fn new(rate: &'a Rate, begun: Instant) -> Self {
        Self { rate, next: begun }
    }

    /// Takes the next request if it is due by `now`. Returns when it was due.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = Some(self.next).filter(|due| *due <= now)?;
        self.next = due + self.rate.interval()?;
        Some(due)
    }

    /// Returns how long no request will be due.
    pub fn pause(&self, now: Instant) -> Duration {
        match self.rate.interval() {
            Some(_) => (self.next.saturating_duration_since(now)).min(LONGEST_PAUSE),
            None => LONGEST_PAUSE,
        }
    }
}

/// Sets a rate look after look.
pub struct Pacer {
    /// The share of the time that the main thread is to be busy.
    busy: f64,
    /// Seconds from one look to the next.
    interval: f64,
    /// By how much the rate changes in one look, at most.
    most: f64,
    last: Option<LoadCounts>,
}

impl Pacer {
    /// Finds a rate from a guess, so it may change a lot in each look.
    pub fn finds(busy: f64) -> Self {
        Self { busy, interval: 0.5, most: 2.0, last: None }
    }

    /// Corrects a rate that was found. A look is longer here, so that it takes in everything that happens once a
    /// second.
    pub fn corrects(busy: f64) -> Self {
        Self { interval: 2.0, most: 1.1, ..Self::finds(busy) }
    }

    /// Returns the rate that follows `rate`, if it is time for a look.
    pub fn look(&mut self, rate: f64, load: &LoadCounts) -> Option<f64> {
        let before = self.last.get_or_insert(*load);
        let seconds = load.at - before.at;
        if seconds < self.interval {
            return None;
        }
        let due = (load.totals.due - before.totals.due) as f64;
        let answered = (load.totals.answered - before.totals.answered) as f64;
        // What all that was due needs, even if not all was answered because the thread waited for a CPU.
        let needed = (load.running - before.running) / seconds * due / answered;
        self.last = Some(*load);
        let change = (self.busy / needed).clamp(1.0 / self.most, self.most);
        change.is_finite().then_some(rate * change)
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

    #[test]
    fn late_requests_keep_the_times_when_they_were_due() {
        let begun = Instant::now();
        let rate = Rate::new(1000.0);
        let mut schedule = Schedule::new(&rate, begun);
        // Asked once, after a stall of a second: all of them, each with its own time.
        let second = begun + Duration::from_secs(1);
        let taken: Vec<_> = std::iter::from_fn(|| schedule.take(second)).collect();
        assert_eq!(taken.len(), 1001);
        assert_eq!((taken[0], taken[1000]), (begun, second));
        assert_eq!(schedule.pause(second), Duration::from_millis(1));
    }

    /// Looks ten times a second for some seconds at a server on which a request takes 0.1 ms and that has the
    /// CPU for `share` of the time.
    fn after(mut pacer: Pacer, mut rate: f64, seconds: u32, share: f64) -> f64 {
        let cost = 1e-4;
        let (mut due, mut answered, mut running) = (0.0, 0.0, 0.0);
        for tenth in 0..=10 * seconds {
            let load = LoadCounts {
                at: f64::from(tenth) / 10.0,
                totals: Totals { due: due as u64, answered: answered as u64, ..Totals::default() },
                running,
                ..LoadCounts::default()
            };
            rate = pacer.look(rate, &load).unwrap_or(rate);
            let now = (rate * 0.1 * cost).min(0.1 * share);
            due += rate * 0.1;
            answered += now / cost;
            running += now;
        }
        rate
    }

    #[test]
    fn the_main_thread_becomes_as_busy_as_it_is_to_be() {
        for (pacer, rate, seconds, share, expected) in [
            // From a guess that is far off.
            (Pacer::finds(0.45), 100.0, 10, 1.0, 4_500.0),
            (Pacer::finds(0.45), 100_000.0, 10, 1.0, 4_500.0),
            // A server that waits for a CPU is not asked for more.
            (Pacer::corrects(0.45), 4_500.0, 20, 0.3, 4_500.0),
            // A correction is small.
            (Pacer::corrects(0.45), 1_000.0, 3, 1.0, 1_100.0),
            // Nothing answered changes nothing.
            (Pacer::corrects(0.45), 1_000.0, 10, 0.0, 1_000.0),
        ] {
            let rate = after(pacer, rate, seconds, share);
            assert!((rate / expected - 1.0).abs() < 0.01, "{rate}, {expected}");
        }
    }
}
