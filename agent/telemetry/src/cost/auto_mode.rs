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
    pub mode: ProbeMode,
    /// When the present mode was entered, monotonic time.
    since: Option<Duration>,
    /// Since when every-call mode has looked cheap.
    cheap_since: Option<Duration>,
    /// How long it must look cheap.
    wait: Duration,
    /// What the probes have cost since the present mode was entered, nanoseconds.
    spent_ns: f64,
    sampling: ProbeSampling,
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
            sampling: ProbeSampling::default(),
        }
    }

    pub fn is_on(&self) -> bool {
        self.mode != ProbeMode::Sampled || self.sampling.on_since.is_some()
    }

    /// Returns when to decide again at the latest, monotonic time, if that cannot wait for the next reading.
    pub fn next(&self) -> Option<Duration> {
        (self.mode == ProbeMode::Sampled).then_some(self.sampling.until)
    }

    /// Decides after a reading at `at` (monotonic time).
    pub fn decide(&mut self, at: Duration, cost: Cost) {
        self.spent_ns += cost.spent_ns;
        match self.mode {
            ProbeMode::EveryCall if self.is_too_much(cost) => self.leave(at),
            ProbeMode::EveryCall => {}
            ProbeMode::EvictingOnly if self.is_too_much(cost) => {
                self.enter(ProbeMode::Sampled, at);
                self.sampling = ProbeSampling::begin(at, cost.second_ratio);
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
    /// a load may spend at once; or have cost anything, and what may be spent in ten seconds is used up.
    fn is_too_much(&self, cost: Cost) -> bool {
        // What another mode cost in that second does not count.
        let second = cost.second_ratio.min(self.spent_ns / 1e9);
        let may_use = if second > self.budget.0 * SPENDABLE { AT_ONCE } else { 1.0 };
        second > 0.0 && self.used(cost) > may_use
    }

    fn watch_for_every_call(&mut self, at: Duration, cost: Cost) {
        let cheap = |ratio: f64| ratio < self.budget.0 * ENTER_BELOW;
        if !self.has_every_call || !cost.every_call_ratio.is_some_and(cheap) {
            self.cheap_since = None;
        } else if at.saturating_sub(*self.cheap_since.get_or_insert(at)) >= self.wait {
            self.enter(ProbeMode::EveryCall, at);
        }
    }

    fn sample(&mut self, at: Duration, cost: Cost) {
        let used = self.used(cost);
        match self.sampling.on_since {
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
        self.wait = if self.since.is_some_and(|since| at.saturating_sub(since) >= LASTED) {
            SHORTEST_RETURN
        } else {
            (self.wait * 2).clamp(SHORTEST_RETURN, LONGEST_RETURN)
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

/// How often the probes are turned on while a server is sampled. Shorter than the quiet time between two bursts
/// (`QUIET_NS`), so that a burst of calls that evict nothing is still one.
const PERIOD: Duration = Duration::from_millis(500);
/// The shortest time for which they are on: attaching takes about a millisecond.
const SHORTEST_ON: Duration = Duration::from_millis(5);
/// The longest such time. If more would fit into the budget, sampling ends.
const LONGEST_ON: Duration = Duration::from_millis(400);
/// Each time, this part of what is left of the ten seconds' budget may be spent. In the long run that spends five
/// sixths of it (20 times a quarter of what is left), and never more than there is.
const AT_A_TIME: f64 = 0.25;
/// The step from one period's jitter to the next, modulo 1: the golden ratio's multiples do not fall into step with
/// anything that the server does regularly.
const JITTER: f64 = 0.618_033_988_749;

/// When the probes are on in mode `sampled`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProbeSampling {
    /// Since when the probes are on; `None` while they are off.
    pub on_since: Option<Duration>,
    /// Until when they are on, or off.
    pub until: Duration,
    /// What they have cost since they were turned on, and what they may cost, nanoseconds.
    spent_ns: f64,
    allowed_ns: f64,
    /// What they cost while they are on, as a share of the main thread: the last time, and the time before.
    shares: [f64; 2],
    /// For how long they were meant to be on the last time.
    length: Duration,
    /// How often they have been on.
    times: u32,
}

impl ProbeSampling {
    /// Begins at `at` with probes that are off, and that cost this share of the main thread while they were on.
    pub fn begin(at: Duration, share: f64) -> Self {
        Self { shares: [share; 2], until: at + PERIOD, ..Self::default() }
    }

    /// Returns what the probes cost while they are on, as a share of the main thread.
    pub fn share(&self) -> f64 {
        let [last, before] = self.shares;
        last.max(before)
    }

    /// Takes in what the probes, on since `since`, have cost. Turns them off if it is time, and returns whether they
    /// are still on.
    pub fn stays_on(&mut self, at: Duration, since: Duration, spent_ns: f64) -> bool {
        self.spent_ns += spent_ns;
        if at < self.until && self.spent_ns < 2.0 * self.allowed_ns {
            return true;
        }
        let on_ns = at.saturating_sub(since).as_nanos().max(1) as f64;
        self.shares = [self.spent_ns / on_ns, self.shares[0]];
        self.on_since = None;
        self.times = self.times.wrapping_add(1);
        let jitter = 0.75 + 0.5 * (f64::from(self.times) * JITTER).fract();
        self.until = since + PERIOD.mul_f64(jitter);
        false
    }

    /// Turns the probes on if it is time, and if `left_ns` of the budget allows it.
    pub fn turn_on_if_due(&mut self, at: Duration, left_ns: f64) {
        if at < self.until {
            return;
        }
        let share = self.share().max(f64::MIN_POSITIVE);
        let (shortest, longest) = (SHORTEST_ON.as_nanos() as f64, LONGEST_ON.as_nanos() as f64);
        self.allowed_ns = left_ns * AT_A_TIME;
        self.spent_ns = 0.0;
        if share * shortest > left_ns {
            self.until = at + PERIOD;
            return;
        }
        let on_ns = (self.allowed_ns / share).clamp(shortest, longest);
        // A share that was measured in a few milliseconds may be wrong.
        let most = (self.length * 2).max(SHORTEST_ON);
        self.length = Duration::from_nanos(on_ns as u64).min(most);
        self.on_since = Some(at);
        self.until = at + self.length;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{AutoMode, LONGEST_RETURN, WINDOW};
    use crate::cost::overhead::OverheadBudget;
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
            self.spent[self.spent.partition_point(|(until, _)| *until <= at).max(1) - 1].1
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
        let run = Run::new().load(30, Some(0.2)).loads(20, Some(0.2), 0.1).load(10, Some(0.2));
        assert_eq!(run.auto.mode, ProbeMode::EvictingOnly);
    }

    #[test]
    fn without_a_budget_nothing_is_spent_once_it_is_noticed() {
        let mut run = Run::new();
        run.auto.budget = OverheadBudget(0.0);
        let run = run.loads(1, None, 0.1);
        let early = run.spent_until(Duration::MAX);
        assert_eq!(run.loads(60, None, 0.1).spent_until(Duration::MAX), early);
    }

    #[test]
    fn a_quiet_server_comes_to_every_call_and_a_busy_one_never_does() {
        assert_eq!(Run::new().load(100, Some(0.001)).changes, [(10, ProbeMode::EveryCall)]);
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
        assert_eq!(run.changes, [(10, every_call), (20, evicting_only), (45, every_call)]);
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
}
