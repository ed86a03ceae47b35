//! What the probes of a plan cost a server, predicted before anything is attached.

use serde::Serialize;

use crate::binary::{ProbePlan, Site};
use crate::telemetry::{HitCosts, ProbeMode, ProbedSites, Stepping};

/// Which sites of a plan would be probed, and what the kernel does there.
pub fn probed_sites(plan: &ProbePlan) -> ProbedSites {
    let stepping = |emulated: bool| match emulated {
        true => Stepping::Emulated,
        false => Stepping::SingleStepped,
    };
    let of = |site: &Site| stepping(site.emulated);
    let evicting = plan.sites.evicting();
    ProbedSites {
        entry: plan.sites.every_call().map(of),
        goal: evicting.map(|(goal, _)| of(goal)),
        done: evicting.map(|(_, done)| stepping(done.iter().all(|done| done.site.emulated))),
    }
}

/// Where the costs of a hit come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// They were measured on this machine just now.
    Measured,
    /// They could not be measured here: upper ends of what was measured on another machine.
    Documented,
}

/// What the probes would cost at a rate of eviction calls.
#[derive(Debug, Serialize)]
pub struct Prediction {
    /// Where the costs of a hit come from.
    pub source: Source,
    /// Eviction calls a second.
    pub calls_per_second: f64,
    /// Each probe mode.
    pub modes: Vec<ModeCost>,
}

/// What one probe mode would cost.
#[derive(Debug, Serialize)]
pub struct ModeCost {
    /// `every-call` or `evicting-only`.
    pub mode: String,
    /// Nanoseconds added to a no-op call.
    pub noop_call_ns: f64,
    /// Nanoseconds added to an evicting call.
    pub evicting_call_ns: f64,
    /// Share of the main thread where all calls are no-op calls; 1 is all of one core.
    pub ratio_if_none_evicts: f64,
    /// Share of the main thread where all calls evict.
    pub ratio_if_all_evict: f64,
}

/// Predicts what each mode would cost a server that runs `plan`.
pub fn predict(
    plan: &ProbePlan,
    costs: HitCosts,
    source: Source,
    calls_per_second: f64,
) -> Prediction {
    let sites = probed_sites(plan);
    let modes = ProbeMode::ALL.map(|mode| {
        let noop_call_ns = costs.call_ns(sites, mode, false);
        let evicting_call_ns = costs.call_ns(sites, mode, true);
        ModeCost {
            mode: mode.to_string(),
            noop_call_ns,
            evicting_call_ns,
            ratio_if_none_evicts: noop_call_ns * calls_per_second / 1e9,
            ratio_if_all_evict: evicting_call_ns * calls_per_second / 1e9,
        }
    });
    Prediction {
        source,
        calls_per_second,
        modes: modes.into(),
    }
}
