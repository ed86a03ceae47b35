//! When requests are due: at a rate, independent of earlier ones.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// The longest pause of an idle generator, so that it notices its end and a new rate.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Requests a second, which another thread may change.
pub struct Rate(AtomicU64);

impl Rate {
    /// Begins with a rate.
    pub fn new(rate: f64) -> Self {
        Self(AtomicU64::new(rate.to_bits()))
    }

    /// Returns the rate.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Changes it.
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn without_a_rate_nothing_is_due() {
        let begun = Instant::now();
        for rate in [0.0, -1.0, f64::NAN].map(Rate::new) {
            let mut schedule = Schedule::new(&rate, begun);
            assert_eq!(schedule.take(begun + Duration::from_secs(1000)), None);
            assert_eq!(schedule.pause(begun), LONGEST_PAUSE);
        }
    }
}
