//! What the probes cost a server, and the most that they may.

use std::collections::VecDeque;
use std::str::FromStr;
use std::time::Duration;

use evictscope_abi::{EVICTION, EXPIRE, Probe};
use evictscope_model::Member;

use super::correction::{Between, Correction};
use super::hit_costs::{HitCosts, ProbedSites};
use crate::{ProbeMode, Snapshot};

/// The time over which the budget limits the mean cost.
pub(super) const WINDOW: Duration = Duration::from_secs(10);
/// The time over which a load is judged.
const SECOND: Duration = Duration::from_secs(1);

/// What the probes have cost a server until a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Since the reading before, nanoseconds of the main thread.
    pub spent_ns: f64,
    /// In the last second, as a share of the main thread's wall time.
    pub second_ratio: f64,
    /// In the last ten seconds, likewise.
    pub ratio: f64,
    /// The part of that for expire cycles, whose probes no mode removes.
    pub cycles_ratio: f64,
    /// What every-call mode would have cost in the last second; `None` if it is not known how many eviction calls the
    /// server made.
    pub every_call_ratio: Option<f64>,
}

/// The counters at a reading.
#[derive(Clone, Debug)]
struct Reading {
    at: Duration,
    /// What the hits have cost since the server was found, as measured elsewhere, nanoseconds.
    hits_ns: f64,
    /// The part of that for expire cycles.
    cycles_ns: f64,
    /// What placing and profiles have cost since the server was found.
    other_ns: f64,
    /// What everything has cost in this server since the first reading, nanoseconds.
    total_ns: f64,
    /// The part of `hits_ns` for evicting calls.
    inside_ns: f64,
    goals: u64,
    commands: Option<u64>,
    evicted_keys: Option<u64>,
    /// CPU time of the main thread, nanoseconds.
    cpu_ns: Option<u64>,
}

impl Reading {
    /// Returns what happened since `last`, if all of it is known and the server evicted.
    fn since(&self, last: &Self) -> Option<Between> {
        let more = |now: Option<u64>, last: Option<u64>| now?.checked_sub(last?).filter(|more| *more > 0);
        more(self.evicted_keys, last.evicted_keys)?;
        Some(Between {
            time: self.at.saturating_sub(last.at),
            commands: more(self.commands, last.commands)? as f64,
            hits_ns: self.hits_ns - last.hits_ns,
            cpu_ns: self.cpu_ns?.checked_sub(last.cpu_ns?)? as f64,
        })
    }
}

/// What the probes of one server cost.
#[derive(Clone, Debug, Default)]
pub struct Overhead {
    costs: HitCosts,
    /// By function.
    sites: Vec<ProbedSites>,
    correction: Correction,
    placed: u64,
    /// What profiles have cost so far, nanoseconds.
    profiled_ns: u64,
    /// Readings of the last ten seconds, the first one a little older.
    readings: VecDeque<Reading>,
    /// What they cost; `None` until the second reading.
    pub last: Option<Cost>,
}

impl Overhead {
    /// Begins with a server whose probes have not been hit yet; `sites` has the sites of each traced function.
    pub fn new(costs: HitCosts, sites: Vec<ProbedSites>) -> Self {
        Self { costs, sites, ..Self::default() }
    }

    /// Notes that probes were placed at this many sites.
    pub fn place(&mut self, sites: usize) {
        self.placed += sites as u64;
    }

    /// Notes what profiles have cost so far, nanoseconds.
    pub fn profile(&mut self, spent_ns: u64) {
        self.profiled_ns = self.profiled_ns.max(spent_ns);
    }

    /// Takes in the counts of a snapshot; `is_sampled` is whether the server was sampled until then. Returns the cost,
    /// except the first time.
    pub fn update(&mut self, snapshot: &Snapshot, is_sampled: bool) -> Option<Cost> {
        let at = snapshot.at;
        let mut now = Reading {
            at,
            hits_ns: (0..self.sites.len()).map(|function| self.hits_ns(snapshot, function, &Probe::ALL)).sum(),
            cycles_ns: self.hits_ns(snapshot, usize::from(EXPIRE), &Probe::ALL),
            other_ns: self.placed as f64 * self.costs.placing_ns + self.profiled_ns as f64,
            total_ns: 0.0,
            inside_ns: self.hits_ns(snapshot, usize::from(EVICTION), &[Probe::Inner, Probe::Exit]),
            goals: snapshot.counted.calls.first().map_or(0, |calls| calls.hits[Probe::Inner as usize]),
            commands: snapshot.member(Member::StatNumcommands),
            evicted_keys: snapshot.member(Member::StatEvictedkeys),
            cpu_ns: snapshot.times.map(|times| times.cpu_ns),
        };
        if let Some(last) = self.readings.back() {
            if let Some(between) = now.since(last).filter(|_| is_sampled) {
                self.correction.take_in(between);
            }
            let hits_ns = (now.hits_ns - last.hits_ns) * self.correction.factor();
            now.total_ns = last.total_ns + hits_ns + now.other_ns - last.other_ns;
        }
        let begin = at.saturating_sub(WINDOW);
        while self.readings.get(1).is_some_and(|next| next.at <= begin) {
            self.readings.pop_front();
        }
        self.last = self.cost(&now);
        self.readings.push_back(now);
        self.last
    }

    /// Returns what hits of these probes of a function have cost, as measured elsewhere, nanoseconds; 0 if it has none.
    fn hits_ns(&self, snapshot: &Snapshot, function: usize, probes: &[Probe]) -> f64 {
        let (calls, sites) = (snapshot.counted.calls.get(function), self.sites.get(function));
        let Some((calls, sites)) = calls.zip(sites) else { return 0.0 };
        probes.iter().map(|probe| calls.hits[*probe as usize] as f64 * self.costs.hit_ns(*probe, *sites)).sum()
    }

    fn cost(&self, now: &Reading) -> Option<Cost> {
        let (oldest, last) = (self.readings.front()?, self.readings.back()?);
        // Before the server was found nothing was spent.
        let window = WINDOW.max(now.at.saturating_sub(oldest.at));
        let second = self.readings.partition_point(|reading| reading.at + SECOND <= now.at);
        let second = self.readings.get(second.saturating_sub(1))?;
        let elapsed_ns = SECOND.max(now.at.saturating_sub(second.at)).as_nanos() as f64;
        Some(Cost {
            spent_ns: now.total_ns - last.total_ns,
            second_ratio: (now.total_ns - second.total_ns) / elapsed_ns,
            ratio: (now.total_ns - oldest.total_ns) / window.as_nanos() as f64,
            cycles_ratio: (now.cycles_ns - oldest.cycles_ns) / window.as_nanos() as f64,
            every_call_ratio: self.every_call_ratio(second, now),
        })
    }

    fn every_call_ratio(&self, second: &Reading, now: &Reading) -> Option<f64> {
        let elapsed_ns = now.at.checked_sub(second.at).filter(|elapsed| *elapsed >= SECOND)?.as_nanos() as f64;
        // Each command makes one eviction call at most, so this is too low only for commands that were rejected: they
        // make a call, and are not counted. A counter that was reset tells nothing.
        let calls = now.commands?.checked_sub(second.commands?)?.max(now.goals - second.goals) as f64;
        let sites = self.sites.get(usize::from(EVICTION)).copied().unwrap_or_default();
        let call_ns = self.costs.call_ns(sites, ProbeMode::EveryCall, false);
        let hits_ns = now.inside_ns - second.inside_ns + calls * call_ns;
        Some(self.correction.factor() * hits_ns / elapsed_ns)
    }
}

/// The share of a server's main thread that the probes may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverheadBudget(pub(super) f64);

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
        share.filter(|share| (0.0..=1.0).contains(share)).map(Self).ok_or(BudgetError)
    }
}

impl OverheadBudget {
    /// Returns the share; 1 is all of the thread's time.
    pub fn share(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::Member;

    use super::{BudgetError, Cost, Overhead, OverheadBudget};
    use crate::cost::hit_costs::tests::{COSTS, EMULATED, STEPPED_ENTRY};
    use crate::{MemberValues, ProbedSites, Snapshot};

    /// Hits, and the server's counter of commands.
    type Counts = ([u64; 4], u64);

    fn at(second: u64) -> Snapshot {
        Snapshot { at: Duration::from_secs(second), ..Snapshot::default() }
    }

    /// Returns the cost after readings, each of which is (second, counts).
    fn cost(readings: &[(u64, Counts)], sites: ProbedSites) -> Option<Cost> {
        let mut overhead = Overhead::new(COSTS, vec![sites]);
        let mut cost = None;
        for (second, (hits, commands)) in readings {
            let mut snapshot = at(*second);
            snapshot.counted.calls[0].hits = *hits;
            snapshot.members = Some(MemberValues::from_iter([(Member::StatNumcommands, *commands)]));
            cost = overhead.update(&snapshot, false);
        }
        assert_eq!(overhead.last, cost);
        cost
    }

    fn nanoseconds(ratio: f64, seconds: f64) -> f64 {
        (ratio * seconds * 1e9).round()
    }

    #[test]
    fn the_cost_is_hits_by_time() {
        assert_eq!(cost(&[(10, ([0; 4], 0))], EMULATED), None);
        // 1,000 calls at 700 + 500 ns, 100 of them evicting at 2,000 ns more, in 1 s.
        let hits = [1_000, 1_000, 100, 100];
        let readings = [(10, ([0; 4], 0)), (11, (hits, 1_000)), (12, (hits, 1_000))];
        let first = cost(&readings[..2], EMULATED).map(|cost| {
            let (second, ten) = (cost.second_ratio, cost.ratio);
            [cost.spent_ns, nanoseconds(second, 1.0), nanoseconds(ten, 10.0)]
        });
        assert_eq!(first, Some([1_400_000.0; 3]));
        // A second later it is only in the mean.
        let later = cost(&readings, EMULATED).map(|cost| (cost.spent_ns, cost.second_ratio, cost.ratio));
        assert_eq!(later, Some((0.0, 0.0, 1.4e6 / 10e9)));
        // And after ten seconds nowhere.
        let readings = [readings[0], readings[1], (22, (hits, 1_000))];
        assert_eq!(cost(&readings, EMULATED).map(|cost| cost.ratio), Some(0.0));
    }

    #[test]
    fn what_expire_cycles_cost_is_told_apart() {
        let mut overhead = Overhead::new(COSTS, vec![EMULATED; 2]);
        overhead.update(&at(1), false);
        let mut snapshot = at(2);
        snapshot.counted.calls.resize_with(2, Default::default);
        snapshot.counted.calls[0].hits = [0, 0, 100, 100];
        snapshot.counted.calls[1].hits = [0, 0, 500, 500];
        let cost = overhead.update(&snapshot, false);
        assert_eq!(cost.map(|cost| (cost.ratio, cost.cycles_ratio)), Some((1.2e6 / 10e9, 1e6 / 10e9)));
    }

    #[test]
    fn placing_probes_and_profiles_cost_too() {
        let mut overhead = Overhead::new(COSTS, vec![EMULATED]);
        overhead.update(&at(1), false);
        overhead.place(3);
        overhead.profile(400_000);
        for (second, spent) in [(2, 415_000.0), (3, 0.0)] {
            let cost = overhead.update(&at(second), false);
            assert_eq!(cost.map(|cost| cost.spent_ns), Some(spent));
            assert_eq!(overhead.last.map(|last| last.ratio), Some(0.415e6 / 10e9));
        }
    }

    #[test]
    fn every_call_mode_is_predicted_from_the_commands() {
        let predicted = |hits, [from, to]: [u64; 2], sites| {
            Some(nanoseconds(cost(&[(10, ([0; 4], from)), (12, (hits, to))], sites)?.every_call_ratio?, 2.0))
        };
        // 500 commands, 100 of which evict.
        let hits = [0, 0, 100, 100];
        assert_eq!(predicted(hits, [7, 507], EMULATED), Some(800_000.0));
        assert_eq!(predicted(hits, [7, 507], STEPPED_ENTRY), Some(3_800_000.0));
        // More calls than commands: rejected commands are not counted.
        assert_eq!(predicted(hits, [7, 7], EMULATED), Some(320_000.0));
        // CONFIG RESETSTAT.
        assert_eq!(predicted(hits, [507, 7], EMULATED), None);
    }

    #[test]
    fn a_budget_is_a_percentage_or_a_share() {
        for (text, share) in [("1%", 0.01), ("0.01", 0.01), ("0%", 0.0), (" 2.5 % ", 0.025), ("100%", 1.0)] {
            assert_eq!(text.parse(), Ok(OverheadBudget(share)), "{text}");
        }
        for text in ["1", "-1%", "101%", "NaN", "nan%", "inf", "", "%", "one"] {
            assert_eq!(text.parse::<OverheadBudget>(), Err(BudgetError), "{text}");
        }
    }
}
