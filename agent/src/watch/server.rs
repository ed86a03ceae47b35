//! The thread of one server: it plans, attaches, reads and publishes, until the server has ended or the agent is about
//! to end. So no server holds up another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use evictscope_host::{MemoryError, ServerProcess};
use evictscope_model::answers::UnwatchedReason;
use evictscope_plan::{EVICTION_CALL, TracedFunction};
use evictscope_probes::{Attachment, ProbeError, Probes, SocketIterator};
use evictscope_records::NoProfile;
use evictscope_telemetry::{AutoMode, HitCosts, OverheadBudget, ProbeMode};
use evictscope_web::{ExportedServer, Shared};

use super::RequestedMode;
use super::endings::{Endings, Fate};
use super::lookout::Lookout;
use super::pace::{Pace, RETRY_INTERVAL, Stop};
use super::prepared::{NotWatched, Prepared};
use super::probing::Probing;
use super::reading::Sockets;
use super::recorder::{Subject, Surroundings};
use super::watched::{Sources, Watched};
use crate::clock::monotonic;
use crate::planning::{Failure, Planner};
use crate::profile::Profiler;

/// The least time between two published states of a server. Publishing takes more than half as long as reading.
const PUBLISHING_INTERVAL: Duration = Duration::from_millis(240);
/// How often to check whether a server that is waited for has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the threads of all servers share.
#[derive(Clone)]
pub struct Watch {
    pub probes: Arc<Probes>,
    pub planner: Planner,
    pub mode: RequestedMode,
    /// What a probe hit costs on this machine.
    pub costs: HitCosts,
    pub budget: OverheadBudget,
    pub stall_threshold: Duration,
    /// Looks at the connections of servers; `None` if this kernel cannot.
    pub sockets: Option<SocketIterator>,
    /// Takes profiles, or why none can be taken.
    pub profiler: Result<Profiler, NoProfile>,
    pub endings: Endings,
    pub lookout: Lookout,
    pub pace: Pace,
    pub shared: Shared,
    pub stop: Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadOutcome {
    /// The server has ended or runs another program, or the agent is about to end.
    Ended,
    /// The server cannot be watched for as long as it runs.
    Refused,
    /// There was no process or thread for it. Its thread is of more use to another server until it is tried again.
    Later,
}

impl Watch {
    /// Watches a server, which is called `label`, until it has ended, cannot be watched, or the agent is about to end.
    /// Calls `tried` after each attempt to attach to it, with the reason if that failed.
    pub fn watch(&self, process: &ServerProcess, label: &str, tried: impl Fn(Option<Failure>)) -> ThreadOutcome {
        let pid = process.identity.pid;
        let mut before = String::new();
        loop {
            let attached = self.attach(process, label).map(|watched| {
                // Published at once: an agent that has tried all servers is ready, and shows them.
                let published = self.shared.publish(watched.exported());
                (watched, published)
            });
            tried(attached.as_ref().err().and_then(|refused| refused.0.clone()));
            let Failure { reason, is_for_good, why } = match attached {
                Ok((watched, published)) => {
                    self.read(watched, published);
                    return ThreadOutcome::Ended;
                }
                Err(NotWatched(None)) => return ThreadOutcome::Ended,
                Err(NotWatched(Some(failure))) => failure,
            };
            if reason == UnwatchedReason::Resources {
                return ThreadOutcome::Later;
            }
            // Whatever could not be read does not matter if the process has ended meanwhile, or the agent is to end.
            if !is_for_good && (process.handle.has_ended() || self.stop.wait_until(Instant::now())) {
                return ThreadOutcome::Ended;
            }
            if why != before {
                tracing::warn!(pid, server = label, "cannot watch this server: {why}");
            }
            if is_for_good {
                return ThreadOutcome::Refused;
            }
            before = why;
            let retry = Instant::now() + RETRY_INTERVAL;
            while Instant::now() < retry {
                let has_ended = process.handle.has_ended();
                if has_ended || self.stop.wait_until(Instant::now() + LOOK_INTERVAL) {
                    return ThreadOutcome::Ended;
                }
            }
        }
    }

    fn attach(&self, process: &ServerProcess, label: &str) -> Result<Watched, NotWatched> {
        // The server executes the lower file, unless it was started after the file had been changed.
        let below = Prepared::of_lower(process, &self.planner)
            .and_then(|prepared| self.attach_to(process, label, prepared).ok());
        let below = match below.map(|watched| (watched.runs_its_file(), watched)) {
            None | Some((Some(false), _)) => None,
            Some((Some(true), watched)) => Some(watched),
            Some((None, _)) => {
                let why = "only its probes tell which of two files it runs, and they cannot be placed now";
                return Err(NotWatched::for_now(anyhow!(why)));
            }
        };
        let mut watched = match below {
            Some(watched) => watched,
            None => self.attach_to(process, label, Prepared::of(process, &self.planner)?)?,
        };
        // The program that was planned may have been replaced meanwhile; then no probe stays.
        watched.read()?;
        watched.log_attached();
        Ok(watched)
    }

    fn attach_to(&self, process: &ServerProcess, label: &str, prepared: Prepared) -> Result<Watched, NotWatched> {
        let pid = process.identity.pid;
        let Prepared { server, reader } = prepared;
        let (plan, executable) = (server.plan.clone(), server.exe.clone());
        // If no-op calls cannot be counted, every-call mode would only cost.
        let has_choice = plan.function(EVICTION_CALL.description).and_then(TracedFunction::every_call).is_some();
        let mode = match self.mode {
            RequestedMode::EveryCall if has_choice => ProbeMode::EveryCall,
            _ => ProbeMode::EvictingOnly,
        };
        let is_auto = self.mode == RequestedMode::Auto;
        let auto = is_auto.then(|| AutoMode::new(self.budget, has_choice));
        let subject = Subject { profiler: self.profiler.clone(), process: process.clone(), executable };
        let around = Surroundings {
            keeper: self.shared.keeper().cloned().map_err(str::to_owned),
            requests: self.shared.requests().clone(),
            budget: self.budget.share(),
        };
        let for_now = |error: ProbeError| match error {
            ProbeError::Gone(_) => NotWatched(None),
            error => NotWatched::for_now(error),
        };
        let mut attachment = Attachment::new(&self.probes, server).map_err(for_now)?;
        attachment.take_out_left();
        let sources = Sources {
            probing: Probing::new(plan, attachment, self.costs, self.budget),
            reader,
            sockets: Sockets::new(pid, self.sockets.clone()),
            fate: Fate::of(pid, &self.endings),
        };
        let mut watched = Watched::new(label, subject, around, sources, self.stall_threshold);
        watched.begin(mode, auto).map_err(for_now)?;
        Ok(watched)
    }

    /// Reads a server until it has ended, and replaces its `published` state.
    fn read(&self, mut watched: Watched, mut published: Arc<ExportedServer>) {
        let mut pace = self.pace.of_server();
        let mut next = Instant::now();
        let mut has_news = false;
        let mut has_lookout = true;
        let mut ended = None;
        while !self.stop.wait_until(next) {
            let read = watched.read();
            if let Err(MemoryError::Gone) = read {
                let at = monotonic();
                let ending = watched.ended(&self.stop);
                let ended_now = ending.map(|ending| (at, ending));
                self.shared.withdraw(&published, ended_now);
                // This tells any caller who waits for an answer.
                drop(self.shared.requests().take(&published.label));
                ended = ended_now.filter(|(at, ending)| self.endings.may_record(*at, *ending));
                break;
            }
            // This includes what was read too early to be published, if the server has become calm since.
            has_news |= !matches!(read, Ok(false));
            if has_news && published.read.elapsed() >= PUBLISHING_INTERVAL {
                published = self.shared.publish(watched.exported());
                has_news = false;
            }
            next = watched.next(pace.interval(watched.is_read_often()));
            if has_lookout && !has_news && watched.is_calm() {
                has_lookout = watched.wait(&self.lookout);
                next = Instant::now();
            }
        }
        watched.finish_records(ended);
    }
}
