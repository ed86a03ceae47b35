//! Predicts the cost of a plan's probes before anything is attached.

use std::fmt;

use evictscope_plan::{EVICTION_CALL, ProbePlan};
use evictscope_telemetry::{HitCosts, ProbeMode, ProbedSites};
use serde::Serialize;

/// Where the costs of a hit come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// They were measured on this machine just now.
    Measured,
    /// They could not be measured here: these are the upper ends of measurements on another machine.
    Documented,
}

/// The predicted cost of the probes at a rate of eviction calls. `json` describes the fields.
#[derive(Debug, Serialize)]
pub struct Prediction {
    source: CostSource,
    calls_per_second: f64,
    modes: Vec<ModeCost>,
}

#[derive(Debug, Serialize)]
struct ModeCost {
    mode: String,
    noop_call_ns: f64,
    evicting_call_ns: f64,
    ratio_if_none_evicts: f64,
    ratio_if_all_evict: f64,
}

/// Predicts the cost of each mode for a server with this plan.
pub fn predict(plan: &ProbePlan, costs: HitCosts, source: CostSource, calls_per_second: f64) -> Prediction {
    let sites = plan.function(EVICTION_CALL.description).map_or_else(ProbedSites::default, ProbedSites::of);
    // Sampling costs what the budget allows.
    let modes = [ProbeMode::EveryCall, ProbeMode::EvictingOnly].map(|mode| {
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
    Prediction { source, calls_per_second, modes: modes.into() }
}

impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            CostSource::Measured => "measured on this machine",
            CostSource::Documented => "documented, not measured here, as that needs what `evictscope check` checks",
        };
        writeln!(f, "\ncost at {} eviction calls/s ({source})", self.calls_per_second)?;
        writeln!(
            f,
            "  mode           ns a no-op call  ns an evicting call  share of the main thread, where no call evicts … all do"
        )?;
        for mode in &self.modes {
            writeln!(
                f,
                "  {:<13}  {:>15.0}  {:>19.0}  {:.2} % … {:.2} %",
                mode.mode,
                mode.noop_call_ns,
                mode.evicting_call_ns,
                mode.ratio_if_none_evicts * 100.0,
                mode.ratio_if_all_evict * 100.0,
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use evictscope_telemetry::HitCosts;
    use evictscope_testkit::servers;

    use super::{CostSource, predict};

    #[test]
    fn a_server_that_evicts_nothing_pays_nothing_in_evicting_only_mode() -> anyhow::Result<()> {
        let Some(server) = servers::find_or_skip(servers::DEBIAN)? else { return Ok(()) };
        let plan = evictscope_plan::plan(&std::fs::read(server)?, None)?;
        let costs = HitCosts { enter_ns: 700.0, return_ns: 500.0, goal_and_done_ns: 2_000.0, ..HitCosts::DOCUMENTED };
        let prediction = predict(&plan, costs, CostSource::Measured, 50_000.0);
        assert_eq!(prediction.modes[1].ratio_if_none_evicts, 0.0);
        let text = prediction.to_string();
        assert!(text.contains("measured on this machine"), "{text}");
        assert!(text.contains("6.00 % … 11.00 %"), "{text}");
        Ok(())
    }
}
