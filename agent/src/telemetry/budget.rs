//! Chooses the probe mode of a server if the user leaves that to the agent.
//!
//! A pure state machine over what the probes cost in each interval, and what they would cost. A
//! server begins in evicting-only mode, and comes to every-call mode only where that is known to be
//! cheap: a busy server never pays for finding out.

use std::str::FromStr;
use std::time::Duration;

use super::{IntervalCost, ProbeMode};

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
/// does not go back and forth.
const ENTER_BELOW: f64 = 0.5;

/// The share of a server's main thread that every-call mode may cost.
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

/// The probe mode of one server, and what it depends on.
#[derive(Clone, Debug)]
pub struct AutoMode {
    budget: OverheadBudget,
    mode: ProbeMode,
    /// When the present mode was entered, monotonic time.
    since: Option<Duration>,
    /// Since when every-call mode has looked cheap.
    cheap_since: Option<Duration>,
    /// How long it has to look cheap.
    wait: Duration,
}

impl AutoMode {
    /// Begins with a server that was found just now.
    pub fn new(budget: OverheadBudget) -> Self {
        Self {
            budget,
            mode: ProbeMode::EvictingOnly,
            since: None,
            cheap_since: None,
            wait: FIRST_WAIT,
        }
    }

    /// Returns the mode to be in.
    pub fn mode(&self) -> ProbeMode {
        self.mode
    }

    /// Decides on the mode after an interval that ended at `at` (monotonic time).
    pub fn decide(&mut self, at: Duration, cost: IntervalCost) {
        match self.mode {
            ProbeMode::EveryCall if cost.ratio > self.budget.0 => self.leave(at),
            ProbeMode::EveryCall => {}
            ProbeMode::EvictingOnly => {
                let cheap = |ratio: f64| ratio < self.budget.0 * ENTER_BELOW;
                if !cost.every_call_ratio.is_some_and(cheap) {
                    self.cheap_since = None;
                } else if at.saturating_sub(*self.cheap_since.get_or_insert(at)) >= self.wait {
                    self.enter(ProbeMode::EveryCall, at);
                }
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
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{AutoMode, BudgetError, LONGEST_RETURN, OverheadBudget};
    use crate::telemetry::{IntervalCost, ProbeMode};

    const BUDGET: OverheadBudget = OverheadBudget(0.01);

    /// A server under one load after the other, and when its mode changed.
    struct Run {
        auto: AutoMode,
        second: u64,
        changes: Vec<(u64, ProbeMode)>,
    }

    impl Run {
        fn new() -> Self {
            Self {
                auto: AutoMode::new(BUDGET),
                second: 0,
                changes: Vec::new(),
            }
        }

        /// A load at which every-call mode costs `every_call`, and evicting-only mode nothing.
        fn load(mut self, seconds: u64, every_call: Option<f64>) -> Self {
            for _ in 0..seconds {
                self.second += 1;
                let before = self.auto.mode;
                let cost = IntervalCost {
                    ratio: match before {
                        ProbeMode::EveryCall => every_call.unwrap_or(0.0),
                        ProbeMode::EvictingOnly => 0.0,
                    },
                    every_call_ratio: every_call,
                };
                self.auto.decide(Duration::from_secs(self.second), cost);
                if self.auto.mode != before {
                    self.changes.push((self.second, self.auto.mode));
                }
            }
            self
        }
    }

    #[test]
    fn a_quiet_server_comes_to_every_call_and_a_busy_one_never_does() {
        let quiet = Run::new().load(100, Some(0.001));
        assert_eq!(quiet.changes, [(11, ProbeMode::EveryCall)]);
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
        let expected = [(11, every_call), (21, evicting_only), (46, every_call)];
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
        /// Whatever the load does, every-call mode is left in the first interval over the budget, and
        /// the changes get rare.
        #[test]
        fn it_never_flaps(loads in prop::collection::vec((1..60_u64, prop::option::of(0.0..0.05_f64)), 1..100)) {
            let mut run = Run::new();
            for (seconds, every_call) in loads {
                run = run.load(seconds, every_call);
                if every_call.is_some_and(|ratio| ratio > BUDGET.0) {
                    prop_assert_eq!(run.auto.mode, ProbeMode::EvictingOnly);
                }
            }
            for pair in run.changes.windows(2) {
                let [(from, mode), (to, _)] = pair else { continue };
                if *mode == ProbeMode::EvictingOnly {
                    prop_assert!(to - from >= 20, "back after {} s", to - from);
                }
            }
            prop_assert!(run.auto.wait <= LONGEST_RETURN);
        }
    }
}
