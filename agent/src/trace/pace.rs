//! When the probes of a trace are on, so that they cost no more than the budget.
//!
//! They are on all the time if the budget allows it, and otherwise for part of the time, as in mode `sampled` of the
//! daemon. What is not spent may be spent later, up to what ten seconds allow.

use std::time::Duration;

use evictscope_telemetry::ProbeSampling;

/// How long calls are counted before anything is promised.
pub const TRIAL: Duration = Duration::from_millis(5);
/// At the beginning, as much may be spent as the budget allows in this time.
const HEAD_START: Duration = Duration::from_secs(1);
/// No more may be spent at once than the budget allows in this time.
const SAVED: Duration = Duration::from_secs(10);
/// Sampling ends when the probes cost less than this part of the budget while they are on, so that a rate near the
/// budget does not go back and forth.
const ALL_THE_TIME_BELOW: f64 = 0.8;

/// The budget of a trace, and how the time that it allows is spent.
#[derive(Debug)]
pub struct TracePace {
    /// Share of a thread's time.
    budget: f64,
    /// What may be spent now, in nanoseconds; below 0 if more was spent.
    left_ns: f64,
    /// Until when `left_ns` was added up.
    until: Duration,
    /// `None` if the probes are on all the time.
    sampling: Option<ProbeSampling>,
}

impl TracePace {
    /// Begins at `at`, when the trial began. In the trial, hits cost `share` of a thread's time. Returns `None` if not
    /// even that can be repeated.
    pub fn new(budget: f64, at: Duration, share: f64) -> Option<Self> {
        let most = budget * SAVED.as_nanos() as f64;
        if share * TRIAL.as_nanos() as f64 > most {
            return None;
        }
        let sampling = (share > budget).then(|| ProbeSampling::begin(at, share));
        Some(Self { budget, left_ns: budget * HEAD_START.as_nanos() as f64, until: at, sampling })
    }

    /// Takes in what the probes have cost since the last time. Returns whether they must be on from now on.
    pub fn update(&mut self, at: Duration, spent_ns: f64) -> bool {
        let elapsed = at.saturating_sub(self.until).as_nanos() as f64;
        self.until = at;
        let most = self.budget * SAVED.as_nanos() as f64;
        self.left_ns = (self.left_ns + self.budget * elapsed).min(most) - spent_ns;
        let Some(sampling) = &mut self.sampling else {
            if self.left_ns < 0.0 {
                self.sampling = Some(ProbeSampling::begin(at, spent_ns / elapsed.max(1.0)));
            }
            return self.sampling.is_none();
        };
        if let Some(since) = sampling.on_since {
            if sampling.stays_on(at, since, spent_ns) {
                return true;
            }
            if sampling.share() < self.budget * ALL_THE_TIME_BELOW {
                self.sampling = None;
            }
            return self.sampling.is_none();
        }
        sampling.turn_on_if_due(at, self.left_ns);
        sampling.on_since.is_some()
    }

    /// Returns whether the probes are on for only part of the time.
    pub fn is_sampled(&self) -> bool {
        self.sampling.is_some()
    }

    /// Returns when to call [`TracePace::update`] next, at the latest.
    pub fn next(&self) -> Option<Duration> {
        self.sampling.as_ref().map(|sampling| sampling.until)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::TracePace;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// Begins with a budget; in the trial, hits cost nothing.
    fn pace(budget: f64) -> TracePace {
        TracePace::new(budget, Duration::ZERO, 0.0).unwrap_or_else(|| panic!("refused"))
    }

    /// Lets `seconds` pass in which probes cost `share` of the time while they are on. Returns the part of the time
    /// that they were on, and what they cost in all.
    fn run(pace: &mut TracePace, from: u32, seconds: u32, share: f64) -> (f64, f64) {
        let (mut on, mut is_on) = (0, false);
        let turns = from * 1_000..(from + seconds) * 1_000;
        for turn in turns.clone() {
            on += u32::from(is_on);
            let spent = if is_on { share * 1e6 } else { 0.0 };
            is_on = pace.update(MILLISECOND * turn, spent);
        }
        let part = f64::from(on) / turns.len() as f64;
        (part, part * share)
    }

    #[test]
    fn what_is_cheap_is_observed_all_the_time() {
        let mut pace = pace(0.01);
        let (part, _) = run(&mut pace, 0, 30, 0.008);
        assert!(part > 0.99 && !pace.is_sampled(), "{part}");
    }

    #[test]
    fn what_is_costly_is_observed_within_the_budget() {
        for share in [0.02, 0.1, 0.9] {
            let mut pace = TracePace::new(0.01, Duration::ZERO, share).unwrap_or_else(|| panic!("refused"));
            let (part, cost) = run(&mut pace, 0, 30, share);
            assert!(pace.is_sampled());
            assert!(part > 0.0 && cost < 0.0101, "{share}: {part} of the time, {cost}");
            // In the long run, most of the budget is used.
            let (_, cost) = run(&mut pace, 30, 60, share);
            assert!((0.005..0.0105).contains(&cost), "{share}: {cost}");
        }
    }

    #[test]
    fn a_load_that_comes_later_is_noticed_and_one_that_goes_too() {
        let mut pace = pace(0.01);
        run(&mut pace, 0, 10, 0.0);
        let (_, cost) = run(&mut pace, 10, 20, 0.5);
        assert!(pace.is_sampled() && cost < 0.016, "{cost}");
        let (part, _) = run(&mut pace, 30, 30, 0.001);
        assert!(!pace.is_sampled() && part > 0.8, "{part}");
    }

    #[test]
    fn placing_counts_as_a_cost_but_not_as_one_that_goes_on() {
        // It takes 20 µs, more than this budget allows in a second.
        let mut pace = pace(1e-5);
        assert!(!pace.update(MILLISECOND * 5, 20e3));
        let (part, _) = run(&mut pace, 1, 30, 0.0);
        assert!(part > 0.0, "{part}");
    }

    #[test]
    fn what_would_cost_too_much_at_once_is_refused() {
        assert!(TracePace::new(0.0001, Duration::ZERO, 0.9).is_none());
    }
}
