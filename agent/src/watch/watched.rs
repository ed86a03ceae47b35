//! A server that probes are attached to, and the conclusions from each reading of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evictscope_abi::ServerConfig;
use evictscope_plan::{EVICTION_CALL, ProbePlan, TracedFunction};

use super::burst_log::log_burst;
use super::clock::monotonic;
use super::reading::{Reading, read};
use crate::export::ExportedServer;
use crate::host::{Scheduling, ServerProcess, memory};
use crate::probes::{Attachment, Probes, Target, server_config};
use crate::telemetry::{
    AutoMode, Cycle, HitCosts, Observation, Overhead, ProbeMode, ProbedSites, ServerState,
    Timeline, Withdrawal,
};

/// How often the kernel's bins are read, which it keeps for ten seconds.
const BINS_INTERVAL: Duration = Duration::from_secs(2);

/// A server that probes are attached to.
pub struct Watched {
    pub process: ServerProcess,
    /// Its name in metrics and in the log, for as long as it lives.
    pub label: String,
    plan: Arc<ProbePlan>,
    config: ServerConfig,
    load_bias: u64,
    pub attachment: Attachment,
    /// The mode that it is in.
    mode: ProbeMode,
    /// Chooses the mode; `None` if the user has chosen, or there is no choice.
    pub auto: Option<AutoMode>,
    withdrawn: Option<Withdrawal>,
    pub state: ServerState,
    /// Phases and bursts; `None` if evicting calls are not seen.
    cycle: Option<Cycle>,
    scheduling: Option<Scheduling>,
    /// The last ten minutes; `None` if evicting calls are not seen.
    timeline: Option<Arc<Mutex<Timeline>>>,
    /// When the kernel's bins were last read, monotonic.
    bins_read: Duration,
    overhead: Overhead,
}

impl Watched {
    /// Attaches to a server in `mode`, and stays in it.
    ///
    /// # Errors
    ///
    /// Fails where the process has ended or may not be looked into, or the kernel refuses.
    pub fn attach(
        probes: &mut Probes,
        process: ServerProcess,
        label: String,
        plan: Arc<ProbePlan>,
        mode: ProbeMode,
        costs: HitCosts,
    ) -> anyhow::Result<Self> {
        let pid = process.identity.pid;
        let load_bias = memory::load_bias(pid, plan.identity.entry_point)?;
        let attachment = probes.attach(target(&process, load_bias), &plan, mode)?;
        let found = monotonic();
        let function = plan.function(EVICTION_CALL.description);
        let sees_evictions = function.and_then(TracedFunction::inner_span).is_some();
        Ok(Self {
            config: server_config(pid, load_bias, &plan),
            overhead: Overhead::new(costs, probed_sites(&plan)),
            cycle: sees_evictions.then(|| Cycle::new(found)),
            timeline: sees_evictions.then(|| Arc::new(Mutex::new(Timeline::new(found)))),
            bins_read: found,
            scheduling: Scheduling::of(pid),
            withdrawn: None,
            state: ServerState::new(),
            process,
            label,
            plan,
            load_bias,
            attachment,
            mode,
            auto: None,
        })
    }

    fn pid(&self) -> u32 {
        self.process.identity.pid
    }

    /// Returns everything that is exported about it.
    pub fn exported(&self) -> ExportedServer {
        ExportedServer {
            label: self.label.clone(),
            pid: self.pid(),
            exe: self.process.exe.clone(),
            plan: self.plan.clone(),
            mode: self.mode,
            withdrawn: self.withdrawn.map(|withdrawal| withdrawal.broken),
            overhead_ratio: self.overhead.ratio(),
            state: self.state.clone(),
            cycle: self.cycle.clone(),
            timeline: self.timeline.clone(),
        }
    }

    /// Logs that probes are attached, and which items are not exported.
    pub fn log_attached(&self) {
        let (pid, server) = (self.pid(), &self.label);
        tracing::info!(
            pid,
            server,
            version = self.plan.identity.version,
            probes = self.attachment.probes(),
            mode = %self.mode,
            "attached"
        );
        if self.auto.is_some() && !self.plan.counts_commands() {
            tracing::info!(
                pid,
                server,
                "stays in evicting-only mode: its counter of commands was not found, so what \
                 every-call mode would cost is not known; --probe-mode every-call chooses it all \
                 the same"
            );
        }
        for missing in &self.plan.not_found {
            let (item, reason) = (&missing.item, &missing.reason);
            tracing::warn!(pid, server, "{item} is not exported: {reason}");
        }
    }

    /// Reads its counters and draws the conclusions.
    pub fn read(&mut self, probes: &mut Probes) {
        match read(probes, &self.attachment, &self.config, self.pid()) {
            Ok(reading) => self.take_in(probes, &reading),
            Err(error) => tracing::warn!(pid = self.pid(), server = self.label, "{error}"),
        }
    }

    fn take_in(&mut self, probes: &mut Probes, reading: &Reading) {
        self.state.apply(&reading.snapshot);
        self.withdraw_if_wrong(probes);
        let waiting = self.scheduling.as_ref().and_then(Scheduling::waiting_ns);
        let seen = Observation::new(
            reading.at,
            reading.unix_time,
            &reading.snapshot,
            &self.state,
            waiting,
        );
        self.keep_timeline(probes, &seen);
        let bursts = self.cycle.as_mut().map(|cycle| cycle.observe(&seen));
        for burst in bursts.unwrap_or_default() {
            log_burst(self.pid(), &self.label, &burst);
        }
        let cost = self.overhead.update(reading.read_at, &self.state);
        if let (Some(auto), Some(cost)) = (&mut self.auto, cost) {
            auto.decide(reading.read_at, cost);
        }
    }

    /// Withdraws the plan for good if the server does something that its plan rules out.
    fn withdraw_if_wrong(&mut self, probes: &mut Probes) {
        if self.withdrawn.is_some() {
            return;
        }
        let Some(withdrawal) = Withdrawal::due(&self.state) else {
            return;
        };
        self.withdrawn = Some(withdrawal);
        self.auto = None;
        self.cycle = None;
        self.timeline = None;
        self.mode = ProbeMode::EvictingOnly;
        probes.withdraw(&mut self.attachment);
        let pid = self.pid();
        tracing::error!(
            pid,
            server = self.label,
            exe = %self.process.exe.display(),
            build_id = self.plan.identity.build_id.as_deref().unwrap_or("none"),
            check = %withdrawal.broken,
            "the probe plan is wrong for this server and was withdrawn: {}, at {} of {} evicting \
             calls. What rests on the plan is no longer exported; please report this with the output \
             of `evictscope inspect {pid} --json`",
            withdrawal.broken.meaning(),
            withdrawal.failed,
            withdrawal.tested,
        );
    }

    /// Adds a reading to the last ten minutes.
    fn keep_timeline(&mut self, probes: &Probes, seen: &Observation) {
        let Some(timeline) = &self.timeline else {
            return;
        };
        // It holds numbers only, each of which is right even if a writer panicked.
        let mut timeline = timeline.lock().unwrap_or_else(PoisonError::into_inner);
        timeline.sample(seen.at, seen.used_memory, seen.client_buffers);
        if seen.at.saturating_sub(self.bins_read) < BINS_INTERVAL {
            return;
        }
        self.bins_read = seen.at;
        match probes.read_bins(&self.attachment) {
            Ok((evicting, cpu)) => timeline.take_in(seen.at, seen.unix_time, &evicting, &cpu),
            Err(error) => tracing::warn!(pid = self.process.identity.pid, "{error}"),
        }
    }

    /// Enters the probe mode that was decided on. Returns whether it had to attach, which blocks.
    pub fn follow_mode(&mut self, probes: &mut Probes) -> bool {
        let wanted = self.auto.as_ref().map_or(self.mode, AutoMode::mode);
        if wanted == self.mode {
            return false;
        }
        let pid = self.pid();
        let target = target(&self.process, self.load_bias);
        match probes.set_mode(&mut self.attachment, target, &self.plan, wanted) {
            Ok(()) => {
                tracing::info!(
                    pid,
                    server = self.label,
                    mode = %wanted,
                    "the probe mode follows what the probes cost"
                );
                self.mode = wanted;
            }
            Err(error) => {
                let server = &self.label;
                tracing::warn!(pid, server, "stays in {} mode: {error}", self.mode);
                if let Some(auto) = &mut self.auto {
                    auto.leave(monotonic());
                }
            }
        }
        wanted == ProbeMode::EveryCall
    }
}

fn target(process: &ServerProcess, load_bias: u64) -> Target<'_> {
    Target {
        pid: process.identity.pid,
        exe: &process.exe_proc_path,
        load_bias,
    }
}

/// Returns the probed sites of each traced function, by its number.
fn probed_sites(plan: &ProbePlan) -> Vec<ProbedSites> {
    let mut sites = Vec::new();
    for function in &plan.functions {
        let index = function.kind.index;
        sites.resize(sites.len().max(index + 1), ProbedSites::default());
        sites[index] = ProbedSites::of(function);
    }
    sites
}
