//! A server that probes are attached to, and the conclusions from each reading of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_host::{ContainerName, MemoryError, ServerProcess};
use evictscope_model::Member;
use evictscope_probes::ProbeError;
use evictscope_records::Ending;
use evictscope_telemetry::{
    AutoMode, BrokenInvariant, Burst, Cycle, Moment, Phase, ProbeMode, RecordedReading, ServerState, Snapshot,
    Timeline, Withdrawal,
};
use evictscope_web::ExportedServer;
use parking_lot::Mutex;

use super::commands::CommandReader;
use super::endings::Fate;
use super::lookout::Lookout;
use super::pace::Stop;
use super::probing::Probing;
use super::reading::{ServerReader, Sockets};
use super::recorder::{Recorder, Subject, Surroundings};
use super::server_log::ServerLog;
use crate::clock::{monotonic, since_1970};

/// The log target for each reading, for the tests of what follows from it.
const READINGS: &str = "readings";
/// A server is read often once a request has waited for as long as that takes.
const LONG_WAIT: Duration = Duration::from_millis(20);
/// The shortest time between two readings of a server.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(2);

/// The sources of what is known of a server.
pub struct Sources {
    pub probing: Probing,
    /// Its memory, and its main thread's times.
    pub reader: ServerReader,
    pub sockets: Sockets,
    /// What will tell how it ended.
    pub fate: Fate,
}

/// A server that probes are attached to.
pub struct Watched {
    process: ServerProcess,
    /// Its name in metrics and in the log, for as long as it lives.
    label: String,
    /// The name of its container, if that was found.
    container_name: Option<ContainerName>,
    probing: Probing,
    reader: ServerReader,
    sockets: Sockets,
    /// Its counters of commands; `None` if they were not found.
    commands: Option<CommandReader>,
    pub(super) state: ServerState,
    /// Phases and bursts; `None` if evicting calls are not seen.
    cycle: Option<Cycle>,
    /// The last ten minutes; `None` if evicting calls are not seen.
    timeline: Option<Arc<Mutex<Timeline>>>,
    recorder: Recorder,
    fate: Fate,
    log: ServerLog,
}

impl Watched {
    /// Returns a server in which nothing is probed yet.
    pub fn new(
        label: &str,
        subject: Subject,
        around: Surroundings,
        sources: Sources,
        stall_threshold: Duration,
    ) -> Self {
        let found = monotonic();
        let process = subject.process.clone();
        let mut state = ServerState::stalled_after(stall_threshold);
        state.age_when_found = process.identity.age();
        state.timed = sources.probing.timed();
        let sees_evictions = state.timed.evictions;
        // Found here, not where the server is found, so that a slow disk holds up no other server.
        let container_name = ContainerName::of(process.identity.pid, &process.container);
        let commands = sources.reader.commands();
        let log = commands.as_ref().map(|commands| commands.log.clone());
        let recorder = Recorder::new(label, subject, &sources.probing.plan, around, sees_evictions.then_some(log));
        Self {
            label: label.to_owned(),
            container_name,
            probing: sources.probing,
            reader: sources.reader,
            sockets: sources.sockets,
            commands,
            state,
            cycle: sees_evictions.then(|| Cycle::new(found)),
            timeline: sees_evictions.then(|| Arc::new(Mutex::new(Timeline::new(found)))),
            recorder,
            fate: sources.fate,
            log: ServerLog::new(label, &process),
            process,
        }
    }

    /// Places the probes of a mode. `auto` chooses the mode from then on; without it the server stays in this one.
    /// Probes that would hold up the host are placed later. Fails if the process has ended, or the kernel refuses.
    pub fn begin(&mut self, mode: ProbeMode, auto: Option<AutoMode>) -> Result<(), ProbeError> {
        match self.probing.begin(mode, auto, &mut self.reader) {
            Err(error @ ProbeError::Obstructed(..)) => {
                self.log.placed(Some((mode, error.to_string())));
                Ok(())
            }
            begun => begun,
        }
    }

    /// Returns whether it runs what its probes were placed in; `None` if they could not be placed yet.
    pub fn runs_its_file(&self) -> Option<bool> {
        let is_placed = !self.probing.is_obstructed();
        is_placed.then(|| self.probing.attachment.unrun(self.reader.words()).is_none())
    }

    pub fn exported(&self) -> ExportedServer {
        ExportedServer {
            label: self.label.clone(),
            pid: self.process.identity.pid,
            command: self.process.command.clone(),
            exe: self.process.exe.clone(),
            container: self.process.container.clone(),
            container_name: self.container_name.clone(),
            plan: self.probing.plan.clone(),
            mode: self.probing.mode,
            withdrawn: self.probing.withdrawn.map(|withdrawal| withdrawal.broken),
            cycles_withdrawn: (self.probing.cycles_withdrawn).map(|withdrawal| withdrawal.broken),
            overhead_ratio: self.probing.overhead_ratio(),
            overhead_budget_ratio: self.probing.budget.share(),
            foreign_breakpoints: self.probing.attachment.foreign_breakpoints(),
            is_obstructed: self.probing.is_obstructed(),
            knows_no_expired: self.reader.expired.are_unknown(),
            key_losses: self.recorder.key_losses(),
            state: self.state.clone(),
            cycle: self.cycle.clone(),
            timeline: self.timeline.clone(),
            commands: self.commands.as_ref().map(|commands| commands.log.clone()),
            since_1970: since_1970(),
            records: self.recorder.named(),
            ended: None,
            read: Instant::now(),
        }
    }

    /// Logs that probes are attached, and which items are not exported.
    pub fn log_attached(&self) {
        let attachment = &self.probing.attachment;
        let (sites, breakpoints) = (attachment.sites(), attachment.foreign_breakpoints());
        let plan = &self.probing.plan;
        (self.log).attached(plan, sites, self.probing.mode, breakpoints);
        if self.probing.auto.is_some() && plan.member(Member::StatNumcommands).is_none() {
            self.log.stays_out_of_every_call();
        }
    }

    /// Returns how it has ended, now that its memory is gone, and logs that. Returns `None` if it executes another
    /// program.
    pub fn ended(&self, stop: &Stop) -> Option<Ending> {
        let ending = self.fate.find(&self.process.handle, stop);
        self.log.ended(ending);
        ending
    }

    /// Reads it, draws the conclusions, and places and takes off probes accordingly. Returns whether there was anything
    /// to read. Fails if the process has ended, or runs another program.
    pub fn read(&mut self) -> Result<bool, MemoryError> {
        let is_pressing = self.is_pressing();
        let may_be_calm = self.may_be_calm();
        let read = (self.reader).read(&self.probing.attachment, may_be_calm)?;
        let Some((mut snapshot, failed)) = read else { return Ok(false) };
        snapshot.look = self.sockets.look(&snapshot, is_pressing);
        self.log.read(failed.map(|error| error.to_string()));
        snapshot.spent_ns = self.probing.spend(&snapshot, self.recorder.profiles.spent_ns());
        self.take_in(&snapshot);
        self.fate.lives();
        self.probing.follow(&mut self.reader, &mut self.log);
        Ok(true)
    }

    /// Returns whether clients may be waiting for what it does.
    fn is_pressing(&self) -> bool {
        self.is_evicting() || self.state.waits.waiting() > 0
    }

    fn may_be_calm(&mut self) -> bool {
        !self.is_pressing() && !self.probing.is_changing()
    }

    /// Returns whether there is nothing to read soon.
    pub fn is_calm(&mut self) -> bool {
        self.reader.is_calm() && self.may_be_calm()
    }

    /// Waits until there is something to read of it, while it is calm. Returns whether the lookout could wait for that.
    pub fn wait(&mut self, lookout: &Lookout) -> bool {
        self.reader.wait(lookout)
    }

    /// Returns whether it evicts, or memory falls after it has.
    pub fn is_evicting(&self) -> bool {
        let phase = self.cycle.as_ref().map(|cycle| cycle.phases.phase);
        phase.is_some_and(|phase| phase != Phase::NotSaturated)
    }

    /// Returns whether it must be read often: what it does changes fast, or when a request is answered matters.
    pub fn is_read_often(&self) -> bool {
        self.is_evicting() || self.do_clients_wait()
    }

    fn do_clients_wait(&self) -> bool {
        self.state.waits.oldest_wait() >= LONG_WAIT
    }

    /// Returns when to read it again: after `interval`, or when probes must be placed or taken off.
    pub fn next(&self, interval: Duration) -> Instant {
        let turn = self.probing.next_turn().map_or(interval, |at| at.saturating_sub(monotonic()));
        // What is due may have to wait until the last change is complete.
        Instant::now() + turn.clamp(SHORTEST_INTERVAL, interval)
    }

    fn take_in(&mut self, snapshot: &Snapshot) {
        self.state.apply(snapshot);
        if tracing::enabled!(target: READINGS, tracing::Level::TRACE)
            && let Ok(line) = serde_json::to_string(&RecordedReading::of(snapshot, &self.state, since_1970()))
        {
            tracing::trace!(target: READINGS, server = self.label, "{line}");
        }
        let do_clients_wait = self.do_clients_wait();
        if let Some(commands) = &mut self.commands
            && !commands.follow(self.reader.words(), snapshot, &self.state, do_clients_wait)
        {
            self.log.commands_wrong();
        }
        self.withdraw_if_wrong();
        if self.probing.leave_out_cycles() {
            self.log.leaves_out_cycles();
        }
        self.state.timed = self.probing.timed();
        let mut moment = Moment::new(snapshot, &self.state);
        let bursts = self.cycle.as_mut().map(|cycle| cycle.observe(&moment));
        moment.phase = self.cycle.as_ref().map(|cycle| cycle.phases.phase);
        self.record(snapshot, &moment, &bursts.unwrap_or_default());
    }

    /// Keeps the reading for the timeline and for records, and logs the bursts that are now known to be over.
    fn record(&mut self, snapshot: &Snapshot, moment: &Moment, finished: &[Arc<Burst>]) {
        if let Some(timeline) = &self.timeline {
            timeline.lock().take_in(moment);
        }
        if let Some(cycle) = &self.cycle {
            let (is_open, overhead) = (cycle.has_open_burst(), self.probing.overhead_ratio());
            let names = self.recorder.take_in(snapshot, moment, &self.state, is_open, finished, overhead);
            for (burst, record) in finished.iter().zip(&names) {
                self.log.burst(burst, record.as_ref());
            }
        }
        let timeline = self.timeline.as_deref().map(Mutex::lock);
        self.recorder.answer(&self.probing.plan, timeline.as_deref());
    }

    /// Has all pending records kept: nothing more will be read. `ended` says when and how it ended, if that is to be
    /// recorded.
    pub fn finish_records(&mut self, ended: Option<(Duration, Ending)>) {
        self.recorder.finish_profiles();
        let timeline = self.timeline.as_deref().map(Mutex::lock);
        self.recorder.finish(&self.probing.plan, timeline.as_deref(), ended);
    }

    /// Withdraws for good what the plan says of eviction calls, or of the expire cycle, if the server does something
    /// that the plan rules out.
    fn withdraw_if_wrong(&mut self) {
        if self.probing.withdrawn.is_none()
            && let Some(withdrawal) = Withdrawal::of_evictions(&self.state)
        {
            self.probing.withdraw_evictions(withdrawal);
            if !withdrawal.broken.leaves_counters() {
                self.cycle = None;
                self.timeline = None;
                self.recorder.withdraw();
            }
            if withdrawal.broken == BrokenInvariant::NotRun {
                self.probing.cycles_withdrawn = Some(withdrawal);
                self.log.not_run(&withdrawal);
                return;
            }
            let lost = "What rests on the plan is no longer exported";
            let plan = &self.probing.plan;
            (self.log).withdrawn("the probe plan", plan, &withdrawal, lost);
        }
        let are_members_wrong =
            (self.probing.withdrawn).is_some_and(|withdrawal| withdrawal.broken.disproves_members());
        if self.probing.cycles_withdrawn.is_none()
            && let Some(withdrawal) = Withdrawal::of_cycles(&self.state)
            && !(are_members_wrong && withdrawal.broken.rests_on_members())
        {
            self.probing.cycles_withdrawn = Some(withdrawal);
            if let Some(timeline) = &self.timeline {
                timeline.lock().forget_cycles();
            }
            let lost = "What is measured of expire cycles is no longer exported; evictions are still exported";
            let part = "the probe plan of the expire cycle";
            let plan = &self.probing.plan;
            (self.log).withdrawn(part, plan, &withdrawal, lost);
        }
    }
}
