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
}

/// Requests as they fall due, evenly spaced: the open loop.
pub struct Schedule {
    rate: f64,
    /// When the first request at this rate was due.
    since: Instant,
    /// Requests taken at this rate.
    taken: u64,
}

impl Schedule {
    /// Begins at `begun`.
    pub fn new(rate: f64, begun: Instant) -> Self {
        Self {
            rate,
            since: begun,
            taken: 0,
        }
    }

    /// Changes the rate, from the last request that was taken on.
    pub fn set_rate(&mut self, rate: f64) {
        if rate == self.rate {
            return;
        }
        if let Some(last) = self.taken.checked_sub(1)
            && let Some(due) = self.due(last)
        {
            (self.since, self.taken) = (due, 1);
        }
        self.rate = rate;
    }

    /// Takes the next request if it is due by `now`. Returns when it was due.
    pub fn take(&mut self, now: Instant) -> Option<Instant> {
        let due = self.due(self.taken).filter(|due| *due <= now)?;
        self.taken += 1;
        Some(due)
    }

    /// Returns how long no request will be due.
    pub fn pause(&self, now: Instant) -> Duration {
        let due = self.due(self.taken);
        due.map_or(LONGEST_PAUSE, |due| {
            due.saturating_duration_since(now).min(LONGEST_PAUSE)
        })
    }

    /// Returns when a request is due, computed from the first one at this rate so that no error adds up.
    fn due(&self, number: u64) -> Option<Instant> {
        let since = Duration::try_from_secs_f64(number as f64 / self.rate).ok()?;
        // The first request would be due at once even at a rate of 0.
        (self.rate > 0.0).then(|| self.since + since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(schedule: &mut Schedule, now: Instant) -> Vec<Instant> {
        std::iter::from_fn(|| schedule.take(now)).collect()
    }

    #[test]
    fn late_requests_keep_the_times_when_they_were_due() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(1000.0, begun);
        // Asked once, after a stall of a second: all of them, each with its own time.
        let second = begun + Duration::from_secs(1);
        let taken = all(&mut schedule, second);
        assert_eq!(taken.len(), 1001);
        assert_eq!(taken.first(), Some(&begun));
        assert_eq!(taken.last(), Some(&second));
        assert_eq!(schedule.take(second), None);
        assert_eq!(schedule.pause(second), Duration::from_millis(1));
    }

    #[test]
    fn no_error_adds_up() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(7000.0, begun);
        let taken = all(&mut schedule, begun + Duration::from_secs(600));
        assert_eq!(taken.len(), 7000 * 600 + 1);
    }

    #[test]
    fn a_new_rate_counts_from_the_last_request() {
        let begun = Instant::now();
        let at = |milliseconds| begun + Duration::from_millis(milliseconds);
        let mut schedule = Schedule::new(100.0, begun);
        assert_eq!(all(&mut schedule, at(25)), [at(0), at(10), at(20)]);
        schedule.set_rate(200.0);
        // None is left out, taken twice or due earlier than one that was taken.
        assert_eq!(all(&mut schedule, at(30)), [at(25), at(30)]);
        schedule.set_rate(50.0);
        schedule.set_rate(50.0);
        assert_eq!(schedule.pause(at(45)), Duration::from_millis(5));
        assert_eq!(all(&mut schedule, at(70)), [at(50), at(70)]);
    }

    #[test]
    fn without_a_rate_nothing_is_due() {
        let begun = Instant::now();
        for rate in [0.0, -1.0, f64::NAN] {
            let mut schedule = Schedule::new(rate, begun);
            assert_eq!(schedule.take(begun + Duration::from_secs(1000)), None);
            assert_eq!(schedule.pause(begun), LONGEST_PAUSE);
        }
    }
}
