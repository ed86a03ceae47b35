//! Which probes are placed in a server, and what they cost it.

use std::sync::Arc;
use std::time::Duration;

use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, ProbePlan, TracedFunction};
use evictscope_probes::{Attachment, Coverage, ProbeError, Probed};
use evictscope_telemetry::{
    AutoMode, HitCosts, Overhead, OverheadBudget, ProbeMode, ProbedSites, Snapshot, TimedCalls, Withdrawal,
};

use super::pace::RETRY_INTERVAL;
use super::reading::ServerReader;
use super::server_log::ServerLog;
use crate::clock::monotonic;

pub struct Probing {
    /// What is known of the executable, without what was left out.
    pub plan: Arc<ProbePlan>,
    pub attachment: Attachment,
    pub mode: ProbeMode,
    /// Chooses the mode; `None` if the user has chosen.
    pub auto: Option<AutoMode>,
    /// Why what the plan says of eviction calls was withdrawn, if it was.
    pub withdrawn: Option<Withdrawal>,
    /// The same for the expire cycle.
    pub cycles_withdrawn: Option<Withdrawal>,
    /// Whether expire cycles were taken out of the plan because they alone cost more than the budget.
    are_cycles_left_out: bool,
    overhead: Overhead,
    /// Whether no probe was being taken off at the last reading.
    was_settled: bool,
    pub budget: OverheadBudget,
    /// When to try again to place probes that would have held up the host, monotonic.
    again: Option<Duration>,
}

impl Probing {
    /// Returns the probes of a server in which nothing is probed yet. A hit costs `costs` on this machine.
    pub fn new(plan: Arc<ProbePlan>, attachment: Attachment, costs: HitCosts, budget: OverheadBudget) -> Self {
        Self {
            overhead: Overhead::new(costs, probed_sites(&plan)),
            plan,
            attachment,
            mode: ProbeMode::EvictingOnly,
            auto: None,
            withdrawn: None,
            cycles_withdrawn: None,
            are_cycles_left_out: false,
            was_settled: true,
            budget,
            again: None,
        }
    }

    /// Places the probes of a mode. `auto` chooses the mode from then on; without it the server stays in this one.
    /// Fails if the process has ended, or the kernel refuses.
    pub fn begin(
        &mut self,
        mode: ProbeMode,
        auto: Option<AutoMode>,
        reader: &mut ServerReader,
    ) -> Result<(), ProbeError> {
        self.mode = mode;
        self.auto = auto;
        self.place(self.coverage(mode, true), reader)
    }

    /// Returns what the probes cost, as a share of the main thread.
    pub fn overhead_ratio(&self) -> Option<f64> {
        self.overhead.last.map(|last| last.ratio)
    }

    pub fn timed(&self) -> TimedCalls {
        let evictions = self.plan.function(EVICTION_CALL.description).filter(|_| self.withdrawn.is_none());
        let cycles = self.plan.function(EXPIRE_CYCLE.description).filter(|_| self.cycles_withdrawn.is_none());
        TimedCalls {
            evictions: evictions.is_some_and(TracedFunction::times_inner_calls),
            cycles: cycles.is_some_and(TracedFunction::times_inner_calls),
            cycle_keys: cycles.is_some_and(|cycle| cycle.plan.counts_keys()),
        }
    }

    /// Returns when probes must next be placed or taken off, if that is known.
    pub fn next_turn(&self) -> Option<Duration> {
        self.again.or(self.auto.as_ref().and_then(AutoMode::next))
    }

    /// Returns whether probes are missing because placing them would have held up the host.
    pub fn is_obstructed(&self) -> bool {
        self.again.is_some()
    }

    /// Returns whether probes are being placed or taken off, or will be soon.
    pub fn is_changing(&mut self) -> bool {
        self.next_turn().is_some() || !self.attachment.is_settled()
    }

    pub fn withdraw_evictions(&mut self, withdrawal: Withdrawal) {
        self.withdrawn = Some(withdrawal);
        self.auto = None;
        self.mode = ProbeMode::EvictingOnly;
    }

    /// Takes expire cycles out of the plan once their probes alone have cost more than the budget. Returns whether it
    /// did so now.
    pub fn leave_out_cycles(&mut self) -> bool {
        let ratio = self.overhead.last.map(|last| last.cycles_ratio);
        let costs_too_much = ratio.is_some_and(|ratio| ratio > self.budget.share());
        let cycle = self.plan.function(EXPIRE_CYCLE.description);
        let Some(cycle) = cycle.filter(|_| costs_too_much && self.auto.is_some()) else { return false };
        let why = "its probes alone cost more than --overhead-budget allows".to_owned();
        self.plan = Arc::new(self.plan.without(&cycle.kind, why));
        self.are_cycles_left_out = true;
        true
    }

    /// Takes in what the probes, and all profiles so far, have cost until a reading, and has the mode decided.
    /// Returns what they have cost a sampled server since the last reading, in nanoseconds: while calls are observed
    /// all the time, there are only as many as the probes allow.
    pub fn spend(&mut self, snapshot: &Snapshot, profiles_ns: u64) -> f64 {
        self.overhead.profile(profiles_ns);
        let is_sampled = self.mode == ProbeMode::Sampled;
        let cost = self.overhead.update(snapshot, is_sampled);
        // Nothing can be changed until the last change is complete. And while probes are being taken off, which may
        // take long on a busy host, their cost is not the cost of this mode.
        let is_settled = self.was_settled && self.attachment.is_settled();
        if let (Some(auto), Some(cost), true) = (&mut self.auto, cost, is_settled) {
            auto.decide(monotonic(), cost);
        }
        let cost = cost.filter(|_| is_sampled);
        cost.map_or(0.0, |cost| cost.spent_ns)
    }

    /// Places and takes off probes for the mode that was chosen.
    pub fn follow(&mut self, reader: &mut ServerReader, log: &mut ServerLog) {
        let mode = self.auto.as_ref().map_or(self.mode, |auto| auto.mode);
        let is_on = self.withdrawn.is_none() && self.auto.as_ref().is_none_or(AutoMode::is_on);
        let is_due = self.again.is_none_or(|again| monotonic() >= again);
        match is_due.then(|| self.place(self.coverage(mode, is_on), reader)) {
            Some(Ok(())) => {
                log.placed(None);
                if mode != self.mode {
                    log.mode(mode);
                    self.mode = mode;
                }
            }
            // The next reading says so, or there is none.
            None | Some(Err(ProbeError::Gone(_) | ProbeError::Ending)) => {}
            Some(Err(error)) => {
                log.placed(Some((self.mode, error.to_string())));
                if let Some(auto) = self.auto.as_mut().filter(|_| mode == ProbeMode::EveryCall) {
                    auto.leave(monotonic());
                }
            }
        }
        if self.withdrawn.is_some() {
            self.attachment.give_up(EVICTION_CALL.description);
        }
        if self.cycles_withdrawn.is_some() {
            self.attachment.give_up(EXPIRE_CYCLE.description);
        }
        self.attachment.take_off_unwanted();
        self.was_settled = self.attachment.is_settled();
    }

    /// Returns what is probed in a mode while the probes on eviction calls are on or off. Expire cycles are probed in
    /// any mode.
    fn coverage(&self, mode: ProbeMode, is_on: bool) -> Coverage {
        Coverage {
            eviction: if is_on { probed(&self.plan, mode) } else { Probed::Nothing },
            cycles: self.cycles_withdrawn.is_none() && !self.are_cycles_left_out,
        }
    }

    fn place(&mut self, wanted: Coverage, reader: &mut ServerReader) -> Result<(), ProbeError> {
        let before = self.attachment.covered();
        if before == wanted {
            self.again = None;
            return Ok(());
        }
        reader.count_observed(monotonic(), before.eviction);
        let placed = self.attachment.set(wanted, reader.words());
        // While probes are being placed, only calls that were observed before and will be after are observed.
        let meanwhile = match (before.eviction, self.attachment.covered().eviction) {
            (before, after) if before == after => after,
            (Probed::Nothing, _) => Probed::Nothing,
            (_, after) => after.min(Probed::Inner),
        };
        reader.count_observed(monotonic(), meanwhile);
        self.again = matches!(placed, Err(ProbeError::Obstructed(..))).then(|| monotonic() + RETRY_INTERVAL);
        match placed {
            Ok(sites) => self.overhead.place(sites),
            // The next reading says so, and the plan is withdrawn.
            Err(ProbeError::NotRun(..)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Returns which eviction calls are probed in a mode while the probes are on. If evicting calls end only where no-op
/// calls do, seeing that would cost a server below its limit: then no calls are probed unless all are.
fn probed(plan: &ProbePlan, mode: ProbeMode) -> Probed {
    let function = plan.function(EVICTION_CALL.description);
    let has_exits = function.is_some_and(|function| function.timed_span().is_some());
    match mode {
        ProbeMode::EveryCall => Probed::Every,
        ProbeMode::EvictingOnly | ProbeMode::Sampled if has_exits => Probed::Inner,
        ProbeMode::EvictingOnly | ProbeMode::Sampled => Probed::Nothing,
    }
}

fn probed_sites(plan: &ProbePlan) -> Vec<ProbedSites> {
    let mut sites = Vec::new();
    for function in &plan.functions {
        let index = function.kind.index;
        sites.resize(sites.len().max(index + 1), ProbedSites::default());
        sites[index] = ProbedSites::of(function);
    }
    sites
}
