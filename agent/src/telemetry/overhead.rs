//! What the probes cost a server.

use std::time::Duration;

use evictscope_abi::{EVICTION, Member, Probe};
use evictscope_plan::{Site, TracedFunction};

use super::{Members, ProbeMode, ServerState};

/// The length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// What hits cost on a machine, nanoseconds of the traced thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCosts {
    /// A hit of the entry probe, on an instruction that the kernel emulates.
    pub enter_ns: f64,
    /// A hit of the return probe, on top of the entry probe.
    pub return_ns: f64,
    /// A hit at the goal site and one at a done site together, both emulated.
    pub goal_and_done_ns: f64,
    /// What any hit costs more where the kernel single-steps the instruction.
    pub single_step_ns: f64,
}

/// What the kernel does with the instruction under a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepping {
    /// It emulates it.
    Emulated,
    /// It executes a copy of it elsewhere, with two more traps.
    SingleStepped,
}

/// Which sites of a traced function are probed, and what the kernel does there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedSites {
    /// The entry, with the return probe.
    pub entry: Option<Stepping>,
    /// The inner site.
    pub inner: Option<Stepping>,
    /// The exits: single-stepped where one of them is.
    pub exits: Option<Stepping>,
}

impl ProbedSites {
    /// Returns the sites of `function` that would be probed.
    pub fn of(function: &TracedFunction) -> Self {
        let stepping = |emulated: bool| match emulated {
            true => Stepping::Emulated,
            false => Stepping::SingleStepped,
        };
        let of = |site: &Site| stepping(site.emulated);
        let span = function.timed_span();
        Self {
            entry: function.every_call().map(of),
            inner: span.map(|(begin, _)| of(begin)),
            exits: span.map(|(_, exits)| stepping(exits.iter().all(|exit| exit.site.emulated))),
        }
    }
}

impl HitCosts {
    /// The highest costs measured on a 2-core virtual machine with Linux 6.18 (docs/INSPECT.md), for
    /// predictions where nothing can be measured.
    pub const DOCUMENTED: Self = Self {
        enter_ns: 870.0,
        return_ns: 460.0,
        goal_and_done_ns: 2_000.0,
        single_step_ns: 7_200.0,
    };

    /// Returns the cost of one hit of a probe; 0 where the function has no such site.
    fn hit_ns(&self, probe: Probe, sites: ProbedSites) -> f64 {
        let (site, emulated) = match probe {
            Probe::Enter => (sites.entry, self.enter_ns),
            // On the same instruction as the entry probe, which has paid for it.
            Probe::Return => (sites.entry.map(|_| Stepping::Emulated), self.return_ns),
            Probe::Inner => (sites.inner, self.goal_and_done_ns / 2.0),
            Probe::Exit => (sites.exits, self.goal_and_done_ns / 2.0),
        };
        match site {
            None => 0.0,
            Some(Stepping::Emulated) => emulated,
            Some(Stepping::SingleStepped) => emulated + self.single_step_ns,
        }
    }

    /// Returns the time that the probes of a mode add to a call; `inner` tells whether it is an inner
    /// call.
    pub fn call_ns(&self, sites: ProbedSites, mode: ProbeMode, inner: bool) -> f64 {
        let is_hit = |probe: &Probe| match probe {
            Probe::Enter | Probe::Return => mode == ProbeMode::EveryCall,
            Probe::Inner | Probe::Exit => inner,
        };
        let hits = Probe::ALL.into_iter().filter(is_hit);
        // The sum of nothing would be -0.
        hits.fold(0.0, |sum, probe| sum + self.hit_ns(probe, sites))
    }
}

/// What the probes cost in one interval, as shares of the main thread's wall time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IntervalCost {
    /// The probes that were attached.
    pub ratio: f64,
    /// What every-call mode would have cost in the same interval; `None` where it is not known how
    /// many eviction calls the server made.
    pub every_call_ratio: Option<f64>,
}

/// The counters when an interval began.
#[derive(Clone, Debug)]
struct Begun {
    at: Duration,
    /// By function.
    hits: Vec<[u64; Probe::ALL.len()]>,
    /// The server's counter of commands, and when it was read, nanoseconds.
    commands: Option<(u64, u64)>,
}

impl Begun {
    fn hits_since(&self, begun: &Self, function: usize, probe: Probe) -> u64 {
        let hits = |at: &Self| at.hits.get(function).map_or(0, |hits| hits[probe as usize]);
        hits(self).saturating_sub(hits(begun))
    }
}

/// What the probes of one server cost.
#[derive(Clone, Debug)]
pub struct Overhead {
    costs: HitCosts,
    /// By function.
    sites: Vec<ProbedSites>,
    begun: Option<Begun>,
    last: Option<IntervalCost>,
}

impl Overhead {
    /// Begins with a server whose probes have not been hit yet; `sites` are those of each traced function.
    pub fn new(costs: HitCosts, sites: Vec<ProbedSites>) -> Self {
        Self {
            costs,
            sites,
            begun: None,
            last: None,
        }
    }

    /// Takes in the counts until `at` (monotonic time). Returns the cost of the interval, if one has
    /// ended.
    pub fn update(&mut self, at: Duration, state: &ServerState) -> Option<IntervalCost> {
        if let Some(begun) = &self.begun
            && at < begun.at + INTERVAL
        {
            return None;
        }
        let hits = state
            .calls
            .iter()
            .map(|calls| calls.hits.map(|hits| hits.count()));
        let commands =
            |members: Members| Some((members.get(Member::CommandsProcessed)?, members.read_ns()));
        let now = Begun {
            at,
            hits: hits.collect(),
            commands: state.members.and_then(commands),
        };
        let begun = self.begun.replace(now.clone())?;
        self.last = Some(self.cost(&begun, &now));
        self.last
    }

    /// Returns the probe cost as a share of the main thread's wall time in the last full second; `None` in the
    /// first. What `main_thread_sample` costs is not in it: it could not be measured.
    pub fn ratio(&self) -> Option<f64> {
        self.last.map(|last| last.ratio)
    }

    fn cost(&self, begun: &Begun, now: &Begun) -> IntervalCost {
        let elapsed_ns = (now.at - begun.at).as_secs_f64() * 1e9;
        let share = |probe: Probe| {
            let cost = |(function, sites): (usize, &ProbedSites)| {
                let hits = now.hits_since(begun, function, probe);
                hits as f64 * self.costs.hit_ns(probe, *sites) / elapsed_ns
            };
            self.sites.iter().enumerate().map(cost).sum::<f64>()
        };
        let inside = share(Probe::Inner) + share(Probe::Exit);
        let around = share(Probe::Enter) + share(Probe::Return);
        let eviction = usize::from(EVICTION);
        // Each command makes one eviction call at most, so this is never too low but for commands
        // that were rejected: they make a call, and are not counted.
        let calls_per_ns = commands_per_ns(begun, now).map(|commands| {
            let goals = now.hits_since(begun, eviction, Probe::Inner);
            commands.max(goals as f64 / elapsed_ns)
        });
        let sites = self.sites.get(eviction).copied().unwrap_or_default();
        let call_ns = self.costs.call_ns(sites, ProbeMode::EveryCall, false);
        IntervalCost {
            ratio: inside + around,
            every_call_ratio: calls_per_ns.map(|calls| inside + calls * call_ns),
        }
    }
}

/// Returns the commands that the server executed in a nanosecond; `None` where that cannot be known, as when
/// its counter was reset.
fn commands_per_ns(begun: &Begun, now: &Begun) -> Option<f64> {
    let ((before, before_ns), (after, after_ns)) = (begun.commands?, now.commands?);
    let elapsed_ns = after_ns.checked_sub(before_ns).filter(|ns| *ns > 0)?;
    Some(after.checked_sub(before)? as f64 / elapsed_ns as f64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_abi::{Member, MemberValues};

    use super::{HitCosts, IntervalCost, Overhead, ProbedSites, Stepping};
    use crate::telemetry::{ProbeMode, ServerState, fixture};

    const COSTS: HitCosts = HitCosts {
        enter_ns: 700.0,
        return_ns: 500.0,
        goal_and_done_ns: 2_000.0,
        single_step_ns: 6_000.0,
    };
    const EMULATED: ProbedSites = ProbedSites {
        entry: Some(Stepping::Emulated),
        inner: Some(Stepping::Emulated),
        exits: Some(Stepping::Emulated),
    };
    const STEPPED_ENTRY: ProbedSites = ProbedSites {
        entry: Some(Stepping::SingleStepped),
        ..EMULATED
    };

    /// Returns the cost of two seconds with these hits and this counter of commands at both ends.
    fn cost(hits: [u64; 4], commands: [u64; 2], sites: ProbedSites) -> Option<IntervalCost> {
        let mut overhead = Overhead::new(COSTS, vec![sites]);
        let mut state = ServerState::new();
        let mut snapshot = fixture::empty_snapshot();
        let mut read = |second: u64, hits, commands| {
            snapshot.calls[0].hits = hits;
            let mut members = MemberValues {
                read_ns: second * 1_000_000_000,
                known: 1 << Member::CommandsProcessed as usize,
                ..MemberValues::default()
            };
            members.values[Member::CommandsProcessed as usize] = commands;
            snapshot.samples.members = members;
            state.apply(&snapshot);
            let cost = overhead.update(Duration::from_secs(second), &state);
            assert_eq!(overhead.ratio(), cost.map(|cost| cost.ratio));
            cost
        };
        assert_eq!(read(10, [0; 4], commands[0]), None);
        read(12, hits, commands[1])
    }

    fn nanoseconds(cost: Option<IntervalCost>) -> Option<f64> {
        cost.map(|cost| (cost.ratio * 2e9).round())
    }

    #[test]
    fn the_ratio_is_cost_by_time() {
        // 1,000 calls at 700 + 500 ns, 100 of them evicting at 2,000 ns more, in 2 s.
        let cost = cost([1_000, 1_000, 100, 100], [0, 1_000], EMULATED);
        assert_eq!(nanoseconds(cost), Some(1_400_000.0));
    }

    #[test]
    fn a_single_stepped_site_costs_more() {
        let cost = cost([1_000, 0, 0, 0], [0, 1_000], STEPPED_ENTRY);
        assert_eq!(nanoseconds(cost), Some(6_700_000.0));
    }

    #[test]
    fn every_call_mode_is_predicted_from_the_commands() {
        let predicted = |hits, commands, sites| {
            let ratio = cost(hits, commands, sites)?.every_call_ratio?;
            Some((ratio * 2e9).round())
        };
        // 500 commands, 100 of which evict.
        let hits = [0, 0, 100, 100];
        assert_eq!(predicted(hits, [7, 507], EMULATED), Some(800_000.0));
        assert_eq!(predicted(hits, [7, 507], STEPPED_ENTRY), Some(3_800_000.0));
        // More calls than commands: those that were rejected are not counted.
        assert_eq!(predicted(hits, [7, 7], EMULATED), Some(320_000.0));
        // CONFIG RESETSTAT.
        assert_eq!(predicted(hits, [507, 7], EMULATED), None);
    }

    #[test]
    fn a_call_costs_what_its_probes_cost() {
        let call = |mode, evicting| COSTS.call_ns(STEPPED_ENTRY, mode, evicting);
        assert_eq!(call(ProbeMode::EvictingOnly, false), 0.0);
        assert_eq!(call(ProbeMode::EvictingOnly, true), 2_000.0);
        assert_eq!(call(ProbeMode::EveryCall, false), 7_200.0);
        assert_eq!(call(ProbeMode::EveryCall, true), 9_200.0);
        let nothing = ProbedSites::default();
        assert_eq!(COSTS.call_ns(nothing, ProbeMode::EveryCall, true), 0.0);
    }
}
