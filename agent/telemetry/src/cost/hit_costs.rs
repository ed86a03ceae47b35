//! What a hit of each probe costs, by the machine and the probed instruction.

use std::fmt;

use evictscope_abi::Probe;
use evictscope_plan::{Site, TracedFunction};
use serde::Serialize;

/// What hits cost on a machine, nanoseconds of the traced thread's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HitCosts {
    /// A hit of the entry probe, on an instruction that the kernel emulates.
    pub enter_ns: f64,
    /// A hit of the return probe, on top of the entry probe.
    pub return_ns: f64,
    /// A hit at the goal site and one at a done site together, both emulated.
    pub goal_and_done_ns: f64,
    /// What any hit costs in addition if the kernel single-steps the instruction.
    pub single_step_ns: f64,
    /// Placing a probe and removing it again, hits apart.
    pub placing_ns: f64,
}

/// Which sites of a traced function are probed, and whether the kernel emulates the instruction there; if not, it
/// executes a copy of it elsewhere, with two more traps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbedSites {
    /// The entry, with the return probe.
    pub entry: Option<bool>,
    pub inner: Option<bool>,
    /// The exits: emulated if each of them is.
    pub exits: Option<bool>,
    /// How many of the exits a call can pass without ending there.
    pub passed_exits: u32,
}

impl ProbedSites {
    /// Returns the sites of `function` that would be probed.
    pub fn of(function: &TracedFunction) -> Self {
        let of = |site: &Site| site.emulated;
        let entry = function.every_call();
        let exits = function.timed_span().map(|(_, exits)| exits);
        let is_timed = entry.or(exits.and(function.begin())).is_some();
        let passed = exits.unwrap_or_default().iter();
        let passed = passed.filter(|exit| exit.way.is_some() && Some(&exit.site) != function.begin());
        Self {
            entry: entry.map(of),
            inner: is_timed.then(|| function.begins().all(of)),
            exits: exits.map(|exits| exits.iter().all(|exit| exit.site.emulated)),
            passed_exits: u32::try_from(passed.count()).unwrap_or(u32::MAX),
        }
    }
}

impl HitCosts {
    /// The highest costs measured on a 2-core virtual machine with Linux 6.18, for predictions if nothing can be
    /// measured.
    pub const DOCUMENTED: Self = Self {
        enter_ns: 870.0,
        return_ns: 460.0,
        goal_and_done_ns: 2_000.0,
        single_step_ns: 7_200.0,
        placing_ns: 10_000.0,
    };

    /// Returns the cost of one hit of a probe; 0 if the function has no such site.
    pub(super) fn hit_ns(&self, probe: Probe, sites: ProbedSites) -> f64 {
        let (is_emulated, emulated) = match probe {
            Probe::Enter => (sites.entry, self.enter_ns),
            // On the same instruction as the entry probe, which has paid for it.
            Probe::Return => (sites.entry.map(|_| true), self.return_ns),
            Probe::Inner => (sites.inner, self.goal_and_done_ns / 2.0),
            Probe::Exit => (sites.exits, self.goal_and_done_ns / 2.0),
        };
        match is_emulated {
            None => 0.0,
            Some(true) => emulated,
            Some(false) => emulated + self.single_step_ns,
        }
    }

    /// Returns the most time that the probes of a mode add to a call; `inner` is whether it is an inner call.
    pub fn call_ns(&self, sites: ProbedSites, mode: ProbeMode, inner: bool) -> f64 {
        let is_every = mode == ProbeMode::EveryCall;
        let hits = |probe: Probe| match probe {
            Probe::Enter | Probe::Return => u32::from(is_every),
            Probe::Inner => u32::from(inner && (is_every || sites.exits.is_some())),
            // In every-call mode the return probe ends the call.
            Probe::Exit if is_every || !inner => 0,
            Probe::Exit => 1 + sites.passed_exits,
        };
        // The sum of nothing would be -0.
        Probe::ALL.into_iter().fold(0.0, |sum, probe| sum + f64::from(hits(probe)) * self.hit_ns(probe, sites))
    }
}

/// Which of the programs are attached to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeMode {
    /// Programs that count and time every eviction call, no-op calls too.
    EveryCall,
    /// Programs that only evicting calls hit: a server below its limit pays nothing.
    EvictingOnly,
    /// Like evicting-only, but for part of the time.
    Sampled,
}

impl ProbeMode {
    pub const ALL: [Self; 3] = [Self::EveryCall, Self::EvictingOnly, Self::Sampled];
}

/// The spelling of the command line and of the label `mode`.
impl fmt::Display for ProbeMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::{HitCosts, ProbedSites};
    use crate::ProbeMode;

    pub const COSTS: HitCosts = HitCosts {
        enter_ns: 700.0,
        return_ns: 500.0,
        goal_and_done_ns: 2_000.0,
        single_step_ns: 6_000.0,
        placing_ns: 5_000.0,
    };
    pub const EMULATED: ProbedSites =
        ProbedSites { entry: Some(true), inner: Some(true), exits: Some(true), passed_exits: 0 };
    pub const STEPPED_ENTRY: ProbedSites = ProbedSites { entry: Some(false), ..EMULATED };

    #[test]
    fn a_call_costs_what_its_probes_cost() {
        let call = |mode, evicting| COSTS.call_ns(STEPPED_ENTRY, mode, evicting);
        assert_eq!(call(ProbeMode::EvictingOnly, false), 0.0);
        assert_eq!(call(ProbeMode::EvictingOnly, true), 2_000.0);
        assert_eq!(call(ProbeMode::EveryCall, false), 7_200.0);
        assert_eq!(call(ProbeMode::EveryCall, true), 8_200.0);
        let passing = ProbedSites { passed_exits: 2, ..STEPPED_ENTRY };
        assert_eq!(COSTS.call_ns(passing, ProbeMode::EvictingOnly, true), 4_000.0);
        let no_exits = ProbedSites { exits: None, ..STEPPED_ENTRY };
        let without = |mode| COSTS.call_ns(no_exits, mode, true);
        assert_eq!(without(ProbeMode::EvictingOnly), 0.0);
        assert_eq!(without(ProbeMode::EveryCall), 8_200.0);
        assert_eq!(COSTS.call_ns(ProbedSites::default(), ProbeMode::EveryCall, true), 0.0);
    }
}
