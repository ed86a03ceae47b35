//! A server that probes are attached to, and the conclusions from each reading of it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evictscope_host::{ContainerName, MemoryError, ServerProcess};
use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, ProbePlan, TracedFunction};
use evictscope_probes::{Attachment, Coverage, ProbeError, Probed};
use evictscope_telemetry::{
    AutoMode, Burst, Cycle, HitCosts, Moment, Observation, Overhead, OverheadBudget, Phase,
    ProbeMode, ProbedSites, RecordedReading, ServerState, Snapshot, Timeline, Withdrawal,
};
use evictscope_web::ExportedServer;

use super::clock::monotonic;
use super::reading::Reader;
use super::recorder::{Recorder, Seen, Subject, Surroundings};
use super::server_log::ServerLog;
use super::sockets::Sockets;

/// What logs each reading, for the tests of what follows from it.
const READINGS: &str = "readings";
/// How often a server is read.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often while it evicts, and while memory falls after it has.
const EVICTING_INTERVAL: Duration = Duration::from_millis(20);
/// How often at most.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(2);

/// Where what is known of a server comes from.
pub struct Sources {
    /// Its probes.
    pub attachment: Attachment,
    /// Its memory, and its main thread's times.
    pub reader: Reader,
    /// Its connections.
    pub sockets: Sockets,
}

/// What conclusions are drawn by.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The cost of a probe hit on this machine.
    pub costs: HitCosts,
    /// The most that the probes may cost in probe mode auto.
    pub budget: OverheadBudget,
    /// How long a request waits before its client is stalled.
    pub stall_threshold: Duration,
}

/// A server that probes are attached to.
pub struct Watched {
    process: ServerProcess,
    /// Its name in metrics and in the log, for as long as it lives.
    label: String,
    /// What its container is called, where that was found.
    container_name: Option<ContainerName>,
    plan: Arc<ProbePlan>,
    attachment: Attachment,
    reader: Reader,
    sockets: Sockets,
    /// The mode that it is in.
    mode: ProbeMode,
    /// Chooses the mode; `None` if the user has chosen.
    auto: Option<AutoMode>,
    /// Why what its plan says of eviction calls was withdrawn, where it was.
    withdrawn: Option<Withdrawal>,
    /// The same of the expire cycle.
    cycles_withdrawn: Option<Withdrawal>,
    pub(super) state: ServerState,
    /// Phases and bursts; `None` if evicting calls are not seen.
    cycle: Option<Cycle>,
    /// The last ten minutes; `None` if evicting calls are not seen.
    timeline: Option<Arc<Mutex<Timeline>>>,
    recorder: Recorder,
    overhead: Overhead,
    /// The most that the probes may cost.
    budget: OverheadBudget,
    log: ServerLog,
}

impl Watched {
    /// Returns a server in which nothing is probed yet.
    pub fn new(
        label: &str,
        subject: Subject,
        around: Surroundings,
        sources: Sources,
        limits: Limits,
    ) -> Self {
        let found = monotonic();
        let (process, plan) = (subject.process.clone(), subject.plan.clone());
        let sees_evictions = sees_evictions(&plan);
        // Here, and not where the server is found: a slow disk then holds up no other server.
        let container = process.container.id.as_deref();
        let container_name = container.and_then(|id| ContainerName::of(process.identity.pid, id));
        Self {
            label: label.to_owned(),
            container_name,
            overhead: Overhead::new(limits.costs, probed_sites(&plan)),
            plan,
            attachment: sources.attachment,
            reader: sources.reader,
            sockets: sources.sockets,
            mode: ProbeMode::EvictingOnly,
            auto: None,
            withdrawn: None,
            cycles_withdrawn: None,
            state: ServerState::stalled_after(limits.stall_threshold),
            cycle: sees_evictions.then(|| Cycle::new(found)),
            timeline: sees_evictions.then(|| Arc::new(Mutex::new(Timeline::new(found)))),
            recorder: Recorder::new(label, subject, around, sees_evictions),
            log: ServerLog::new(process.identity.pid, label),
            process,
            budget: limits.budget,
        }
    }

    /// Places the probes of a mode. `auto` chooses the mode from then on; without it the server stays in this one.
    ///
    /// # Errors
    ///
    /// Fails where the process has ended, or the kernel refuses.
    pub fn begin(&mut self, mode: ProbeMode, auto: Option<AutoMode>) -> Result<(), ProbeError> {
        self.mode = mode;
        self.auto = auto;
        self.place(self.coverage(mode, true))
    }

    /// Returns everything that is exported about it.
    pub fn exported(&self) -> ExportedServer {
        ExportedServer {
            label: self.label.clone(),
            pid: self.process.identity.pid,
            command: self.process.command.clone(),
            exe: self.process.exe.clone(),
            container: self.process.container.clone(),
            container_name: self.container_name.clone(),
            plan: self.plan.clone(),
            mode: self.mode,
            withdrawn: self.withdrawn.map(|withdrawal| withdrawal.broken),
            cycles_withdrawn: self.cycles_withdrawn.map(|withdrawal| withdrawal.broken),
            overhead_ratio: self.overhead.ratio(),
            overhead_budget_ratio: self.budget.share(),
            foreign_breakpoints: self.attachment.foreign_breakpoints(),
            state: self.state.clone(),
            cycle: self.cycle.clone(),
            timeline: self.timeline.clone(),
            records: self.recorder.named(),
            read: Instant::now(),
        }
    }

    /// Logs that probes are attached, and which items are not exported.
    pub fn log_attached(&self) {
        let breakpoints = self.attachment.foreign_breakpoints();
        self.log
            .attached(&self.plan, self.attachment.sites(), self.mode, breakpoints);
        if self.auto.is_some() && !self.plan.counts_commands() {
            self.log.stays_out_of_every_call();
        }
    }

    /// Logs that it has ended.
    pub fn log_ended(&self) {
        self.log.ended();
    }

    /// Reads it, draws the conclusions, and places and takes off probes accordingly. Returns whether there was anything to read.
    ///
    /// # Errors
    ///
    /// Fails where the process has ended, or runs another program.
    pub fn read(&mut self) -> Result<bool, MemoryError> {
        let is_pressing = self.is_evicting() || self.state.waits.waiting() > 0;
        let is_changing = self.next_turn().is_some() || !self.attachment.is_settled();
        let read = self
            .reader
            .read(&self.attachment, !is_pressing && !is_changing)?;
        let Some((mut snapshot, failed)) = read else {
            return Ok(false);
        };
        snapshot.look = self.sockets.look(&snapshot, is_pressing);
        self.log.read(failed.map(|error| error.to_string()));
        self.take_in(&snapshot);
        self.follow_mode();
        if self.withdrawn.is_some() {
            self.attachment.give_up(EVICTION_CALL.description);
        }
        if self.cycles_withdrawn.is_some() {
            self.attachment.give_up(EXPIRE_CYCLE.description);
        }
        self.attachment.take_off_unwanted();
        Ok(true)
    }

    /// Tells whether its evicting calls are timed.
    fn times_evictions(&self) -> bool {
        let function = self.plan.function(EVICTION_CALL.description);
        self.withdrawn.is_none() && function.is_some_and(TracedFunction::times_inner_calls)
    }

    /// Tells whether its expire cycles are.
    fn times_cycles(&self) -> bool {
        let function = self.plan.function(EXPIRE_CYCLE.description);
        self.cycles_withdrawn.is_none() && function.is_some_and(TracedFunction::times_inner_calls)
    }

    /// Tells whether it evicts, or memory falls after it has.
    fn is_evicting(&self) -> bool {
        let phase = self.cycle.as_ref().map(|cycle| cycle.phases.phase);
        phase.is_some_and(|phase| phase != Phase::NotSaturated)
    }

    /// Returns when to read it again.
    pub fn next(&self) -> Instant {
        let interval = match self.is_evicting() {
            true => EVICTING_INTERVAL,
            false => INTERVAL,
        };
        let turn = self.next_turn();
        let turn = turn.map_or(interval, |at| at.saturating_sub(monotonic()));
        // What is due may have to wait until the last change is through.
        Instant::now() + turn.clamp(SHORTEST_INTERVAL, interval)
    }

    /// Returns when its probes are to be placed or taken off next, where that is known.
    fn next_turn(&self) -> Option<Duration> {
        self.auto.as_ref().and_then(AutoMode::next)
    }

    fn take_in(&mut self, snapshot: &Snapshot) {
        self.state.is_timed = (self.times_evictions(), self.times_cycles());
        self.state.apply(snapshot);
        if tracing::enabled!(target: READINGS, tracing::Level::TRACE)
            && let Ok(line) = serde_json::to_string(&RecordedReading::of(snapshot, &self.state))
        {
            tracing::trace!(target: READINGS, server = self.label, "{line}");
        }
        self.withdraw_if_wrong();
        let mut seen = Observation::new(snapshot, &self.state);
        let cycle = self.plan.function(EXPIRE_CYCLE.description);
        if self.cycles_withdrawn.is_some() || !cycle.is_some_and(TracedFunction::counts_keys) {
            seen.cycle_keys = None;
        }
        let bursts = self.cycle.as_mut().map(|cycle| cycle.observe(&seen));
        self.overhead.profile(self.recorder.spent_ns());
        let is_sampled = self.mode == ProbeMode::Sampled;
        let cost = (self.overhead).update(snapshot.at, &self.state, is_sampled);
        // Where calls are observed all the time, they are as many as the probes let them be.
        let spent_ns = cost
            .filter(|_| is_sampled)
            .map_or(0.0, |cost| cost.spent_ns);
        self.state.observe(snapshot.observed, spent_ns);
        self.record(snapshot, &seen, &bursts.unwrap_or_default());
        // Until the last change is through, nothing can be changed.
        let is_settled = self.attachment.is_settled();
        if let (Some(auto), Some(cost), true) = (&mut self.auto, cost, is_settled) {
            auto.decide(monotonic(), cost);
        }
    }

    /// Keeps the reading for the timeline and for records, and logs the bursts that are now known to be over.
    fn record(&mut self, snapshot: &Snapshot, seen: &Observation, finished: &[Arc<Burst>]) {
        let phase = self.cycle.as_ref().map(|cycle| cycle.phases.phase);
        let moment = Moment::new(snapshot, &self.state, phase, self.times_cycles());
        if let Some(timeline) = &self.timeline {
            lock(timeline).take_in(seen, self.state.evicting_ns(), moment);
        }
        if let Some(cycle) = &self.cycle {
            let names = self.recorder.take_in(&Seen {
                snapshot,
                moment: &moment,
                state: &self.state,
                cycle,
                finished,
                overhead: self.overhead.ratio(),
            });
            for (burst, record) in finished.iter().zip(&names) {
                self.log.burst(burst, record.as_ref());
            }
        }
        let timeline = self.timeline.as_deref().map(lock);
        self.recorder.answer(timeline.as_deref());
    }

    /// Has all records kept that are waited for: nothing more will be read.
    pub fn finish_records(&mut self) {
        self.recorder.finish_profiles();
        let timeline = self.timeline.as_deref().map(lock);
        self.recorder.finish(timeline.as_deref());
    }

    /// Withdraws for good what the plan says of eviction calls, or of the expire cycle, if the server does something
    /// that it rules out.
    fn withdraw_if_wrong(&mut self) {
        if self.withdrawn.is_none()
            && let Some(withdrawal) = Withdrawal::of_evictions(&self.state)
        {
            self.withdrawn = Some(withdrawal);
            self.auto = None;
            self.cycle = None;
            self.timeline = None;
            self.recorder.withdraw();
            self.mode = ProbeMode::EvictingOnly;
            let lost = "What rests on the plan is no longer exported";
            let part = "the probe plan";
            self.log.withdrawn(
                &self.process.exe,
                &self.plan,
                part,
                &withdrawal,
                ["evicting calls", lost],
            );
        }
        let are_members_wrong =
            (self.withdrawn).is_some_and(|withdrawal| withdrawal.broken.disproves_members());
        if self.cycles_withdrawn.is_none()
            && let Some(withdrawal) = Withdrawal::of_cycles(&self.state)
            && !(are_members_wrong && withdrawal.broken.rests_on_members())
        {
            self.cycles_withdrawn = Some(withdrawal);
            if let Some(timeline) = &self.timeline {
                lock(timeline).forget_cycles();
            }
            let lost = "What is measured of expire cycles is no longer exported; evictions are still exported";
            let tested = match withdrawal.broken.rests_on_members() {
                true => "spans of a hundred cycles or more",
                false => "cycles",
            };
            let part = "the probe plan of the expire cycle";
            self.log.withdrawn(
                &self.process.exe,
                &self.plan,
                part,
                &withdrawal,
                [tested, lost],
            );
        }
    }

    /// Places and takes off probes for the mode that was decided on.
    fn follow_mode(&mut self) {
        let mode = self.auto.as_ref().map_or(self.mode, AutoMode::mode);
        let is_on = self.withdrawn.is_none() && self.auto.as_ref().is_none_or(AutoMode::is_on);
        let placed = self.place(self.coverage(mode, is_on));
        match placed {
            Ok(()) => {
                self.log.placed(None);
                if mode != self.mode {
                    self.log.mode(mode);
                    self.mode = mode;
                }
            }
            // The next reading says so, or there is none.
            Err(ProbeError::Gone(_) | ProbeError::Ending) => {}
            Err(error) => {
                self.log.placed(Some((self.mode, error.to_string())));
                if let Some(auto) = self.auto.as_mut().filter(|_| mode == ProbeMode::EveryCall) {
                    auto.leave(monotonic());
                }
            }
        }
    }

    /// Returns what is probed in a mode while the probes on eviction calls are on or off. Expire cycles are probed
    /// whatever the mode.
    fn coverage(&self, mode: ProbeMode, is_on: bool) -> Coverage {
        Coverage {
            eviction: match is_on {
                true => probed(&self.plan, mode),
                false => Probed::Nothing,
            },
            cycles: self.cycles_withdrawn.is_none(),
        }
    }

    fn place(&mut self, wanted: Coverage) -> Result<(), ProbeError> {
        let before = self.attachment.covered();
        if before == wanted {
            return Ok(());
        }
        self.reader.count_observed(monotonic(), before.eviction);
        let placed = self.attachment.set(wanted);
        // While probes are placed, those calls are observed that were before and are after.
        let meanwhile = match (before.eviction, self.attachment.covered().eviction) {
            (before, after) if before == after => after,
            (Probed::Nothing, _) => Probed::Nothing,
            (_, after) => after.min(Probed::Inner),
        };
        self.reader.count_observed(monotonic(), meanwhile);
        self.overhead.place(placed?);
        Ok(())
    }
}

/// Tells whether the evicting calls of a server with this plan are seen.
fn sees_evictions(plan: &ProbePlan) -> bool {
    let function = plan.function(EVICTION_CALL.description);
    function.is_some_and(TracedFunction::times_inner_calls)
}

/// Locks a timeline: it holds numbers only, each of which is right even if a writer panicked.
fn lock(timeline: &Mutex<Timeline>) -> MutexGuard<'_, Timeline> {
    timeline.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns which eviction calls are probed in a mode while the probes are on. Where evicting calls end only where no-op
/// calls do, a server below its limit would pay for seeing that: then no calls are probed unless all are.
fn probed(plan: &ProbePlan, mode: ProbeMode) -> Probed {
    let function = plan.function(EVICTION_CALL.description);
    let has_exits = function.is_some_and(|function| function.timed_span().is_some());
    match mode {
        ProbeMode::EveryCall => Probed::Every,
        ProbeMode::EvictingOnly | ProbeMode::Sampled if has_exits => Probed::Inner,
        ProbeMode::EvictingOnly | ProbeMode::Sampled => Probed::Nothing,
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
