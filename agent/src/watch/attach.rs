//! Takes on a server: plans, chooses the probe mode, and attaches.

use evictscope_plan::{EVICTION_CALL, TracedFunction};

use super::plans::Plans;
use super::settings::RequestedMode;
use super::watched::Watched;
use crate::host::ServerProcess;
use crate::probes::Probes;
use crate::telemetry::{AutoMode, HitCosts, OverheadBudget, ProbeMode};

/// Everything that attaching to a server takes, except for the programs.
pub struct Attacher {
    /// The plans made so far.
    pub plans: Plans,
    /// The cost of a probe hit on this machine.
    pub costs: HitCosts,
    /// The probe mode that the user asks for.
    pub mode: RequestedMode,
    /// The most that every-call mode may cost in probe mode auto.
    pub budget: OverheadBudget,
}

impl Attacher {
    /// Attaches to a server, which is called `label` from now on.
    ///
    /// # Errors
    ///
    /// Fails where nothing can be learnt from the process, or the kernel refuses. Nothing stays
    /// attached then.
    pub fn attach(
        &mut self,
        probes: &mut Probes,
        process: ServerProcess,
        label: String,
    ) -> anyhow::Result<Watched> {
        let plan = self.plans.plan(&process)?;
        if let Some(why) = plan.unusable_reason() {
            anyhow::bail!("{why}; --process-match says which processes are servers");
        }
        // Where no-op calls cannot be counted, every-call mode would only cost.
        let function = plan.function(EVICTION_CALL.description);
        let has_choice = function.and_then(TracedFunction::every_call).is_some();
        let mode = match self.mode {
            RequestedMode::EveryCall if has_choice => ProbeMode::EveryCall,
            _ => ProbeMode::EvictingOnly,
        };
        let mut watched = Watched::attach(probes, process, label, plan, mode, self.costs)?;
        if self.mode == RequestedMode::Auto && has_choice {
            watched.auto = Some(AutoMode::new(self.budget));
        }
        watched.log_attached();
        Ok(watched)
    }
}
