//! Takes on a server: plans, chooses the probe mode, and attaches.

use evictscope_plan::{EVICTION_CALL, TracedFunction};

use super::plans::Plans;
use super::settings::RequestedMode;
use super::watched::Watched;
use crate::host::{ServerProcess, memory};
use crate::probes::{Probes, Target};
use crate::telemetry::{AutoMode, HitCosts, OverheadBudget, ProbeMode};

/// What it takes to attach to a server, beside the programs.
pub struct Attacher {
    /// The plans made so far.
    pub plans: Plans,
    /// What a probe hit costs on this machine.
    pub costs: HitCosts,
    /// The probe mode that the user asks for.
    pub mode: RequestedMode,
    /// What every-call mode may cost in probe mode auto.
    pub budget: OverheadBudget,
}

impl Attacher {
    /// Attaches to a server, which goes by `label` from now on.
    ///
    /// # Errors
    ///
    /// Where nothing can be learnt from the process, or the kernel refuses; nothing stays attached
    /// then.
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
        let pid = process.identity.pid;
        let load_bias = memory::load_bias(pid, plan.identity.entry_point)?;
        // Where no-op calls cannot be counted, every-call mode would only cost.
        let function = plan.function(EVICTION_CALL.description);
        let has_choice = function.and_then(TracedFunction::every_call).is_some();
        let mode = match self.mode {
            RequestedMode::EveryCall if has_choice => ProbeMode::EveryCall,
            _ => ProbeMode::EvictingOnly,
        };
        let auto =
            (self.mode == RequestedMode::Auto && has_choice).then(|| AutoMode::new(self.budget));
        let target = Target {
            pid,
            exe: &process.exe_proc_path,
            load_bias,
        };
        let attachment = probes.attach(target, &plan, mode)?;
        let watched = Watched::new(
            process, label, plan, load_bias, attachment, self.costs, mode, auto,
        );
        watched.log_attached();
        Ok(watched)
    }
}
