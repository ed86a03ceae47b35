//! Chooses the probe mode of a server if the user leaves that to the agent, and when its probes are on.
//!
//! A pure state machine over what the probes cost until each reading, and what they would cost. A
//! server begins in evicting-only mode, and comes to every-call mode only where that is known to be
//! cheap: a busy server never pays for finding out. Where evicting calls alone cost too much, it is
//! sampled: twice a second the probes are on, for as long as the budget allows.
//!
//! Invariant: over any ten seconds the mean cost is below the budget, but for what is spent before the reading
//! at which it is noticed.

use std::str::FromStr;
use std::time::Duration;

use super::overhead::WINDOW;
use super::sampling::Sampling;
use super::{Cost, ProbeMode};

/// How long every-call mode has to look cheap before a server enters it for the first time: long
/// enough to tell a quiet server from a pause of a busy one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The shortest wait after every-call mode was left. Longer than the usual scrape interval of
/// 15 s, so that each gap in the counts of no-op calls shows as a gap in their series.
const SHORTEST_RETURN: Duration = Duration::from_secs(20);
/// The wait doubles at each return that did not last, up to this.
const LONGEST_RETURN: Duration = Duration::from_secs(600);
/// Every-call mode that lasted as long as this was right: the next wait is the shortest again.
const LASTED: Duration = Duration::from_secs(600);
/// Every-call mode is entered below this share of the budget, so that a load at the budget's edge
/// does not go back and forth. Likewise sampling ends below it.
const ENTER_BELOW: f64 = 0.5;
/// What of the budget may be spent in ten seconds: what is noticed late has room in the rest.
const SPENDABLE: f64 = 0.9;
/// A load that is over the budget may spend this part of that at once. So a short burst is seen whole.
const AT_ONCE: f64 = 0.5;

/// The share of a server's main thread that the probes may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadBudget(f64);

/// The budget cannot be understood.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a share of the main thread from 0% to 100%: write 1% or 0.01, for example")]
pub struct BudgetError;

impl FromStr for OverheadBudget {
    type Err = BudgetError;

    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let text = text.trim();
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let share = match text.strip_suffix('%') {
            Some(percent) => number(percent).map(|percent| percent / 100.0),
            // "1" may mean 1 % or all of it.
            None => number(text).filter(|share| *share < 1.0),
        };
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.map(Self).ok_or(BudgetError)
    }
}

impl OverheadBudget {
    /// Returns the share; 1 is all of the thread's time.
    pub fn share(self) -> f64 {
        self.0
    }
}

/// The probe mode of one server, and what it depends on.
#[derive(Clone, Debug)]
pub struct AutoMode {
    budget: OverheadBudget,
    /// Whether every-call mode can be entered at all.
    has_every_call: bool,
    mode: ProbeMode,
    /// When the present mode was entered, monotonic time.
    since: Option<Duration>,
    /// Since when every-call mode has looked cheap.
    cheap_since: Option<Duration>,
    /// How long it has to look cheap.
    wait: Duration,
    /// What the probes have cost since the present mode was entered, nanoseconds.
    spent_ns: f64,
    sampling: Sampling,
}

impl AutoMode {
    /// Begins with a server that was found just now. `has_every_call` tells whether its plan lets every call be
    /// probed.
    pub fn new(budget: OverheadBudget, has_every_call: bool) -> Self {
        Self {
            budget,
            has_every_call,
            mode: ProbeMode::EvictingOnly,
            since: None,
            cheap_since: None,
            wait: FIRST_WAIT,
            spent_ns: 0.0,
            sampling: Sampling::default(),
        }
    }

    /// Returns the mode to be in.
    pub fn mode(&self) -> ProbeMode {
        self.mode
    }

    /// Tells whether the probes are to be on now.
    pub fn is_on(&self) -> bool {
        self.mode != ProbeMode::Sampled || self.sampling.on_since().is_some()
    }

    /// Returns when to decide again at the latest, monotonic time, where that cannot wait for the next reading.
    pub fn next(&self) -> Option<Duration> {
        (self.mode == ProbeMode::Sampled).then_some(self.sampling.until())
    }

    /// Decides after a reading at `at` (monotonic time).
    pub fn decide(&mut self, at: Duration, cost: Cost) {
        self.spent_ns += cost.spent_ns;
        match self.mode {
            ProbeMode::EveryCall if self.is_too_much(cost) => self.leave(at),
            ProbeMode::EveryCall => {}
            ProbeMode::EvictingOnly if self.is_too_much(cost) => {
                self.enter(ProbeMode::Sampled, at);
                self.sampling = Sampling::begin(at, cost.second_ratio);
            }
            ProbeMode::EvictingOnly => self.watch_for_every_call(at, cost),
            ProbeMode::Sampled => self.sample(at, cost),
        }
    }

    /// Returns what of the last ten seconds' budget is spent, as a share of what may be.
    fn used(&self, cost: Cost) -> f64 {
        cost.ratio / (self.budget.0 * SPENDABLE).max(f64::MIN_POSITIVE)
    }

    /// Tells whether the probes of this mode have cost more than the budget in the last second, and what a load
    /// may cost at once is spent.
    fn is_too_much(&self, cost: Cost) -> bool {
        // What another mode cost in that second does not count.
        let second = cost.second_ratio.min(self.spent_ns / 1e9);
        self.used(cost) > AT_ONCE && second > self.budget.0 * SPENDABLE
    }

    fn watch_for_every_call(&mut self, at: Duration, cost: Cost) {
        let cheap = |ratio: f64| ratio < self.budget.0 * ENTER_BELOW;
        if !self.has_every_call || !cost.every_call_ratio.is_some_and(cheap) {
            self.cheap_since = None;
        } else if at.saturating_sub(*self.cheap_since.get_or_insert(at)) >= self.wait {
            self.enter(ProbeMode::EveryCall, at);
        }
    }

    /// Turns the probes on and off.
    fn sample(&mut self, at: Duration, cost: Cost) {
        let used = self.used(cost);
        match self.sampling.on_since() {
            Some(since) => {
                if self.sampling.is_on_still(at, since, cost.spent_ns) {
                    return;
                }
                if self.sampling.share() < self.budget.0 * ENTER_BELOW && used < AT_ONCE {
                    self.enter(ProbeMode::EvictingOnly, at);
                }
            }
            None => {
                let spendable_ns = self.budget.0 * SPENDABLE * WINDOW.as_nanos() as f64;
                self.sampling
                    .turn_on_if_due(at, (1.0 - used) * spendable_ns);
            }
        }
    }

    /// Leaves every-call mode; also called if it could not be entered.
    pub fn leave(&mut self, at: Duration) {
        let lasted = |since| at.saturating_sub(since) >= LASTED;
        self.wait = match self.since.is_some_and(lasted) {
            true => SHORTEST_RETURN,
            false => (self.wait * 2).clamp(SHORTEST_RETURN, LONGEST_RETURN),
        };
        self.enter(ProbeMode::EvictingOnly, at);
    }

    fn enter(&mut self, mode: ProbeMode, at: Duration) {
        self.mode = mode;
        self.since = Some(at);
        self.cheap_since = None;
        self.spent_ns = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{AutoMode, BudgetError, LONGEST_RETURN, OverheadBudget, WINDOW};
    use crate::{Cost, ProbeMode};

    const BUDGET: OverheadBudget = OverheadBudget(0.01);

    /// A server under one load after the other, read ten times a second, fifty while its probes cost anything.
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

        /// A load at which every-call mode costs `every_call`, and evicting-only mode nothing.
        fn load(self, seconds: u64, every_call: Option<f64>) -> Self {
            self.loads(seconds, every_call, 0.0)
        }

        /// A load at which every-call mode costs `every_call`, and evicting-only mode `evicting`.
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
            let spent =
                self.spent_until(self.at) - self.spent_until(self.at.saturating_sub(window));
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
            // And most of the budget is used, in the long run.
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
        let run = Run::new()
            .load(20, Some(0.0))
            .load(5, Some(0.2))
            .load(60, Some(0.0));
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

    #[test]
    fn a_budget_is_a_percentage_or_a_share() {
        for (text, share) in [
            ("1%", 0.01),
            ("0.01", 0.01),
            ("0%", 0.0),
            (" 2.5 % ", 0.025),
            ("100%", 1.0),
        ] {
            assert_eq!(text.parse(), Ok(OverheadBudget(share)), "{text}");
        }
        for text in ["1", "-1%", "101%", "NaN", "nan%", "inf", "", "%", "one"] {
            assert_eq!(text.parse::<OverheadBudget>(), Err(BudgetError), "{text}");
        }
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
}
