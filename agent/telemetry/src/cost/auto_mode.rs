//! Chooses the probe mode of a server if the user leaves that to the agent, and when its probes are on.
//!
//! A pure state machine over what the probes cost until each reading, and what they would cost. A server begins in
//! evicting-only mode, and enters every-call mode only if that is known to be cheap: a busy server never pays for
//! finding out. If evicting calls alone cost too much, the server is sampled: twice a second the probes are on, for as
//! long as the budget allows.
//!
//! Invariant: over any ten seconds the mean cost is below the budget, except for what is spent before the reading that
//! notices it.

use std::time::Duration;

use super::overhead::WINDOW;
use super::sampling::Sampling;
use crate::{Cost, OverheadBudget, ProbeMode};

/// How long every-call mode must look cheap before a server enters it for the first time: long enough to tell a quiet
/// server from a pause of a busy one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The shortest wait after leaving every-call mode. Longer than the usual scrape interval of 15 s, so that each gap in
/// the counts of no-op calls shows as a gap in their series.
const SHORTEST_RETURN: Duration = Duration::from_secs(20);
/// The wait doubles at each return that did not last, up to this.
const LONGEST_RETURN: Duration = Duration::from_secs(600);
/// Every-call mode that lasted this long was right: the next wait is the shortest again.
const LASTED: Duration = Duration::from_secs(600);
/// Every-call mode is entered below this share of the budget, so that a load at the budget's edge does not switch back
/// and forth. Sampling ends below it, too.
const ENTER_BELOW: f64 = 0.5;
/// The share of the budget that may be spent in ten seconds: the rest is room for what is noticed late.
const SPENDABLE: f64 = 0.9;
/// A load over the budget may spend this part of that at once, so that a short burst is seen whole.
const AT_ONCE: f64 = 0.5;

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
    /// How long it must look cheap.
    wait: Duration,
    /// What the probes have cost since the present mode was entered, nanoseconds.
    spent_ns: f64,
    sampling: Sampling,
}

impl AutoMode {
    /// Begins with a server that was found just now. `has_every_call` is whether its plan lets every call be probed.
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

    /// Returns whether the probes must be on now.
    pub fn is_on(&self) -> bool {
        self.mode != ProbeMode::Sampled || self.sampling.on_since().is_some()
    }

    /// Returns when to decide again at the latest, monotonic time, if that cannot wait for the next reading.
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

    /// Returns how much of the last ten seconds' budget is spent, as a share of what may be spent.
    fn used(&self, cost: Cost) -> f64 {
        cost.ratio / (self.budget.0 * SPENDABLE).max(f64::MIN_POSITIVE)
    }

    /// Returns whether the probes of this mode have cost more than the budget in the last second, and have used up what
    /// a load may spend at once.
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
                if self.sampling.stays_on(at, since, cost.spent_ns) {
                    return;
                }
                if self.sampling.share() < self.budget.0 * ENTER_BELOW && used < AT_ONCE {
                    self.enter(ProbeMode::EvictingOnly, at);
                }
            }
            None => {
                let spendable_ns = self.budget.0 * SPENDABLE * WINDOW.as_nanos() as f64;
                self.sampling.turn_on_if_due(at, (1.0 - used) * spendable_ns);
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
mod tests;
