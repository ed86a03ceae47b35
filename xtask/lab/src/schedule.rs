//! When requests are due: at a rate, independent of earlier ones. The rate is the one at which the server's main thread
//! is as busy as wanted.
//!
//! What a command costs depends on the machine, on what runs beside it, on the rate itself (a round of the event loop
//! with more requests takes less time for each) and on how full the server is. So the rate is set from the CPU time
//! that it takes, look after look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::counts::LoadCounts;

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
    use crate::counts::Totals;

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
