//! When requests are due: at a rate, independent of earlier ones.

use std::time::{Duration, Instant};

/// The longest pause of an idle generator, so that it notices its end.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// How requests fall due.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// This many a second, evenly spaced: the open loop.
    Rate(f64),
    /// Whenever fewer than this many are unanswered: a closed loop, to measure the server's capacity.
    Unanswered(u64),
}

/// Requests as they fall due.
pub struct Schedule {
    pace: Pace,
    begun: Instant,
    taken: u64,
}

impl Schedule {
    /// Begins at `begun`.
    pub fn new(pace: Pace, begun: Instant) -> Self {
        Self {
            pace,
            begun,
            taken: 0,
        }
    }

    /// Takes the next request if it is due by `now`, when `unanswered` requests are unanswered. Returns when it was
    /// due.
    pub fn take(&mut self, now: Instant, unanswered: u64) -> Option<Instant> {
        let due = match self.pace {
            Pace::Rate(_) => self.next_due()?,
            Pace::Unanswered(most) => (unanswered < most).then_some(now)?,
        };
        (due <= now).then(|| {
            self.taken += 1;
            due
        })
    }

    /// Returns how long no request will be due.
    pub fn pause(&self, now: Instant) -> Duration {
        let until = self
            .next_due()
            .map(|due| due.saturating_duration_since(now));
        until.unwrap_or(LONGEST_PAUSE).min(LONGEST_PAUSE)
    }

    /// Returns when the next request is due, computed from the beginning so that no error adds up.
    fn next_due(&self) -> Option<Instant> {
        let Pace::Rate(rate) = self.pace else {
            return None;
        };
        let since = Duration::try_from_secs_f64(self.taken as f64 / rate).ok()?;
        // The first request would be due at once even at a rate of 0.
        (rate > 0.0).then(|| self.begun + since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(schedule: &mut Schedule, now: Instant) -> Vec<Instant> {
        std::iter::from_fn(|| schedule.take(now, 0)).collect()
    }

    #[test]
    fn late_requests_keep_the_times_when_they_were_due() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(Pace::Rate(1000.0), begun);
        // Asked once, after a stall of a second: all of them, each with its own time.
        let second = begun + Duration::from_secs(1);
        let taken = all(&mut schedule, second);
        assert_eq!(taken.len(), 1001);
        assert_eq!(taken.first(), Some(&begun));
        assert_eq!(taken.last(), Some(&second));
        assert_eq!(schedule.take(second, 0), None);
        assert_eq!(schedule.pause(second), Duration::from_millis(1));
    }

    #[test]
    fn no_error_adds_up() {
        let begun = Instant::now();
        let mut schedule = Schedule::new(Pace::Rate(7000.0), begun);
        let taken = all(&mut schedule, begun + Duration::from_secs(600));
        assert_eq!(taken.len(), 7000 * 600 + 1);
    }

    #[test]
    fn without_a_rate_nothing_is_due() {
        let begun = Instant::now();
        for rate in [0.0, -1.0, f64::NAN] {
            let mut schedule = Schedule::new(Pace::Rate(rate), begun);
            assert_eq!(schedule.take(begun + Duration::from_secs(1000), 0), None);
            assert_eq!(schedule.pause(begun), LONGEST_PAUSE);
        }
    }

    #[test]
    fn the_closed_loop_waits_for_answers() {
        let now = Instant::now();
        let mut schedule = Schedule::new(Pace::Unanswered(2), now);
        assert_eq!(schedule.take(now, 1), Some(now));
        assert_eq!(schedule.take(now, 2), None);
    }
}
