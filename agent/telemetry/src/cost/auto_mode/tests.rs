use std::time::Duration;

use proptest::prelude::*;

use super::{AutoMode, LONGEST_RETURN, WINDOW};
use crate::cost::budget::OverheadBudget;
use crate::{Cost, ProbeMode};

const BUDGET: OverheadBudget = OverheadBudget(0.01);

/// A server under one load after another, read ten times a second, or fifty times while its probes cost anything.
struct Run {
    auto: AutoMode,
    at: Duration,
    /// When its mode changed.
    changes: Vec<(u64, ProbeMode)>,
    /// What was spent until each reading, nanoseconds.
    spent: Vec<(Duration, f64)>,
    /// For how long the probes were on.
    on: Duration,
}

impl Run {
    fn new() -> Self {
        Self {
            auto: AutoMode::new(BUDGET, true),
            at: Duration::ZERO,
            changes: Vec::new(),
            spent: vec![(Duration::ZERO, 0.0)],
            on: Duration::ZERO,
        }
    }

    /// Runs a load at which every-call mode costs `every_call`, and evicting-only mode nothing.
    fn load(self, seconds: u64, every_call: Option<f64>) -> Self {
        self.loads(seconds, every_call, 0.0)
    }

    /// Runs a load at which every-call mode costs `every_call`, and evicting-only mode `evicting`.
    fn loads(mut self, seconds: u64, every_call: Option<f64>, evicting: f64) -> Self {
        let end = self.at + Duration::from_secs(seconds);
        while self.at < end {
            let share = match self.auto.mode {
                ProbeMode::EveryCall => every_call.unwrap_or(0.0),
                _ if self.auto.is_on() => evicting,
                _ => 0.0,
            };
            let step = Duration::from_millis(if evicting > 0.0 { 20 } else { 100 });
            let next = (self.at + step).min(self.auto.next().unwrap_or(Duration::MAX));
            let step = next.saturating_sub(self.at).max(Duration::from_millis(1));
            self.at += step;
            if self.auto.is_on() {
                self.on += step;
            }
            let spent_ns = share * step.as_nanos() as f64;
            let before = self.spent_until(Duration::MAX);
            self.spent.push((self.at, before + spent_ns));
            let mode = self.auto.mode;
            let cost = Cost {
                spent_ns,
                second_ratio: self.ratio(Duration::from_secs(1)),
                ratio: self.ratio(WINDOW),
                cycles_ratio: 0.0,
                every_call_ratio: every_call,
            };
            self.auto.decide(self.at, cost);
            if self.auto.mode != mode {
                self.changes.push((self.at.as_secs(), self.auto.mode));
            }
        }
        self
    }

    fn spent_until(&self, at: Duration) -> f64 {
        let later = self.spent.partition_point(|(until, _)| *until <= at);
        self.spent[later.max(1) - 1].1
    }

    fn ratio(&self, window: Duration) -> f64 {
        let spent = self.spent_until(self.at) - self.spent_until(self.at.saturating_sub(window));
        spent / window.as_nanos() as f64
    }

    /// Returns the highest mean over ten seconds that end after `from`.
    fn highest(&self, from: Duration) -> f64 {
        let ends = self.spent.iter().filter(|(at, _)| *at >= from);
        let spent = ends.map(|(at, spent)| spent - self.spent_until(at.saturating_sub(WINDOW)));
        spent.fold(0.0, f64::max) / WINDOW.as_nanos() as f64
    }
}

#[test]
fn evicting_calls_that_cost_too_much_are_sampled_within_the_budget() {
    for share in [0.012, 0.02, 0.05, 0.126, 0.3, 0.5] {
        let run = Run::new().load(30, Some(0.2)).loads(60, Some(0.2), share);
        assert_eq!(run.auto.mode, ProbeMode::Sampled, "{share}");
        let highest = run.highest(Duration::ZERO);
        assert!(highest < BUDGET.0, "{share}: {highest}");
        // In the long run, most of the budget is used.
        let spent = run.spent_until(Duration::MAX) / 60e9;
        assert!(spent > 0.5 * BUDGET.0, "{share}: {spent}");
    }
}

#[test]
fn a_short_burst_is_seen_whole() {
    let run = Run::new().load(30, Some(0.2)).loads(2, Some(0.2), 0.02);
    assert_eq!(run.changes, []);
    assert_eq!(run.on, run.at);
}

#[test]
fn sampling_ends_with_the_load() {
    let run = Run::new().load(30, Some(0.2)).loads(20, Some(0.2), 0.1);
    let run = run.load(10, Some(0.2));
    assert_eq!(run.auto.mode, ProbeMode::EvictingOnly);
}

#[test]
fn without_a_budget_nothing_is_spent_once_it_is_noticed() {
    let mut run = Run::new();
    run.auto.budget = OverheadBudget(0.0);
    let run = run.loads(1, None, 0.1);
    let early = run.spent_until(Duration::MAX);
    let run = run.loads(60, None, 0.1);
    assert_eq!(run.spent_until(Duration::MAX), early);
}

#[test]
fn a_quiet_server_comes_to_every_call_and_a_busy_one_never_does() {
    let quiet = Run::new().load(100, Some(0.001));
    assert_eq!(quiet.changes, [(10, ProbeMode::EveryCall)]);
    assert_eq!(Run::new().load(100, Some(0.2)).changes, []);
    // Within the budget, but too near to it.
    assert_eq!(Run::new().load(100, Some(0.006)).changes, []);
    // What it would cost is not known.
    assert_eq!(Run::new().load(100, None).changes, []);
}

#[test]
fn a_load_sheds_it_at_once_and_it_comes_back_later() {
    let run = Run::new().load(20, Some(0.0)).load(5, Some(0.2)).load(60, Some(0.0));
    let (every_call, evicting_only) = (ProbeMode::EveryCall, ProbeMode::EvictingOnly);
    let expected = [(10, every_call), (20, evicting_only), (45, every_call)];
    assert_eq!(run.changes, expected);
}

#[test]
fn a_pause_does_not_bring_it_back() {
    let mut run = Run::new();
    for _ in 0..20 {
        run = run.load(9, Some(0.0)).load(1, Some(0.2));
    }
    assert_eq!(run.changes, []);
}

#[test]
fn after_a_long_time_the_wait_is_short_again() {
    let mut run = Run::new();
    // Each wait is twice as long as the one before.
    for _ in 0..4 {
        run = run.load(200, Some(0.0)).load(1, Some(0.2));
    }
    let run = run.load(1_000, Some(0.0)).load(1, Some(0.2));
    let before = run.changes.len();
    let run = run.load(30, Some(0.0));
    assert_eq!(run.changes.len(), before + 1, "{:?}", run.changes);
}

proptest! {
    /// Whatever the load does, the budget holds, and the changes get rare.
    #[test]
    fn it_never_flaps(loads in prop::collection::vec((1..60_u64, prop::option::of(0.0..0.05_f64)), 1..100)) {
        let mut run = Run::new();
        for (seconds, every_call) in loads {
            run = run.load(seconds, every_call);
        }
        for pair in run.changes.windows(2) {
            let [(from, mode), (to, _)] = pair else { continue };
            if *mode == ProbeMode::EvictingOnly {
                prop_assert!(to - from >= 20, "back after {} s", to - from);
            }
        }
        prop_assert!(run.auto.wait <= LONGEST_RETURN);
        let highest = run.highest(Duration::ZERO);
        prop_assert!(highest < BUDGET.0, "{}", highest);
    }
}
