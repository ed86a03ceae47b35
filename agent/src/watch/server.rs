//! The thread of one server: it plans, attaches, reads and publishes, until the server has ended or the agent is about to end. So
//! no server holds up another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_host::{Executable, ExecutableError, MemoryError, ServerProcess, Words, load_bias};
use evictscope_plan::{EVICTION_CALL, TracedFunction};
use evictscope_probes::{Attachment, ProbeError, Probes, Server, SocketIterator};
use evictscope_records::NoProfile;
use evictscope_telemetry::{AutoMode, HitCosts, OverheadBudget, ProbeMode};
use evictscope_web::{ExportedServer, Reason, Shared};

use super::lookout::Lookout;
use super::pace::Pace;
use super::probing::Probing;
use super::reading::Reader;
use super::recorder::{Subject, Surroundings};
use super::settings::RequestedMode;
use super::sockets::Sockets;
use super::stop::Stop;
use super::watched::{Sources, Watched};
use crate::planning::{Failure, Planner};
use crate::profile::Profiler;

/// The least time between two published states of a server. Publishing takes more than half as long as reading.
const PUBLISHING_INTERVAL: Duration = Duration::from_millis(240);
/// How long to wait before trying again to attach to a server.
pub const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How often to check whether a server that is waited for has ended.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the threads of all servers share.
#[derive(Clone)]
pub struct Watch {
    /// The loaded programs.
    pub probes: Arc<Probes>,
    /// Makes the plans.
    pub planner: Planner,
    /// The probe mode that the user asked for.
    pub mode: RequestedMode,
    /// What a probe hit costs on this machine.
    pub costs: HitCosts,
    /// The most that the probes may cost in probe mode auto.
    pub budget: OverheadBudget,
    /// How long a request waits before its client is stalled.
    pub stall_threshold: Duration,
    /// Looks at the connections of servers; `None` if this kernel cannot.
    pub sockets: Option<SocketIterator>,
    /// Takes profiles, or why none can be taken.
    pub profiler: Result<Profiler, NoProfile>,
    /// Looks at calm servers.
    pub lookout: Lookout,
    /// How often the other servers are read.
    pub pace: Pace,
    /// Where servers are published.
    pub shared: Shared,
    /// Says when the agent is about to end.
    pub stop: Stop,
}

/// Why the thread of a server has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has ended or runs another program, or the agent is about to end.
    Ended,
    /// The server cannot be watched for as long as it runs.
    Refused,
    /// There was no process or thread for it. Its thread is of more use to another server until it is tried again.
    Later,
}

/// Why a server is not watched.
enum Refusal {
    /// It has ended, or runs another program by now.
    Gone,
    /// That will not change for as long as it runs.
    ForGood(Reason, anyhow::Error),
    /// That may change later.
    ForNow(Reason, anyhow::Error),
}

impl Refusal {
    fn for_now(error: impl Into<anyhow::Error>) -> Self {
        Self::ForNow(Reason::Attach, error.into())
    }

    /// Returns why the server is not watched; `None` if it no longer runs.
    fn why(&self) -> Option<(Reason, String)> {
        match self {
            Self::Gone => None,
            Self::ForGood(reason, why) | Self::ForNow(reason, why) => {
                Some((*reason, format!("{why:#}")))
            }
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        match failure.is_for_good {
            true => Self::ForGood(failure.reason, failure.into()),
            false => Self::ForNow(failure.reason, failure.into()),
        }
    }
}

impl From<MemoryError> for Refusal {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Gone => Self::Gone,
            error @ MemoryError::Denied(_) => Self::ForNow(Reason::Permission, error.into()),
            error @ MemoryError::Other(..) => Self::for_now(error),
        }
    }
}

impl Watch {
    /// Watches a server, which is called `label`, until it has ended, cannot be watched, or the agent is about to end. Calls
    /// `tried` after each attempt to attach to it, with the reason if that failed.
    pub fn watch(
        &self,
        process: &ServerProcess,
        label: &str,
        tried: impl Fn(Option<(Reason, String)>),
    ) -> Outcome {
        let pid = process.identity.pid;
        let mut before = String::new();
        loop {
            let attached = self.attach(process, label).map(|watched| {
                // Published at once: an agent that has tried all servers is ready, and shows them.
                let published = self.shared.publish(watched.exported());
                (watched, published)
            });
            tried(attached.as_ref().err().and_then(Refusal::why));
            let why = match attached {
                Ok((watched, published)) => {
                    self.read(watched, published);
                    return Outcome::Ended;
                }
                Err(Refusal::Gone) => return Outcome::Ended,
                Err(Refusal::ForGood(_, why)) => {
                    tracing::warn!(pid, server = label, "cannot watch this server: {why:#}");
                    return Outcome::Refused;
                }
                Err(Refusal::ForNow(Reason::Resources, _)) => return Outcome::Later,
                // Whatever could not be read does not matter if the process has ended meanwhile, or the agent is about to end.
                Err(Refusal::ForNow(..)) if process.handle.has_ended() => return Outcome::Ended,
                Err(Refusal::ForNow(..)) if self.stop.wait_until(Instant::now()) => {
                    return Outcome::Ended;
                }
                Err(Refusal::ForNow(_, why)) => format!("{why:#}"),
            };
            if why != before {
                tracing::warn!(pid, server = label, "cannot watch this server: {why}");
                before = why;
            }
            let retry = Instant::now() + RETRY_INTERVAL;
            while Instant::now() < retry {
                let has_ended = process.handle.has_ended();
                if has_ended || self.stop.wait_until(Instant::now() + LOOK_INTERVAL) {
                    return Outcome::Ended;
                }
            }
        }
    }

    fn attach(&self, process: &ServerProcess, label: &str) -> Result<Watched, Refusal> {
        let pid = process.identity.pid;
        // This comes first, so that what is read later is of the program that runs now, or nothing.
        let words = Words::open(pid)?;
        let executable = match Executable::open(&process.exe_proc_path) {
            Ok(executable) => Arc::new(executable),
            Err(ExecutableError::Gone(_)) => return Err(Refusal::Gone),
            Err(error) => return Err(Refusal::for_now(error)),
        };
        let plan = self.planner.plan(&executable, &process.exe, pid)?;
        let load_bias = load_bias(pid, plan.identity.entry_point).map_err(Refusal::for_now)?;
        // If no-op calls cannot be counted, every-call mode would only cost.
        let function = plan.function(EVICTION_CALL.description);
        let has_choice = function.and_then(TracedFunction::every_call).is_some();
        let mode = match self.mode {
            RequestedMode::EveryCall if has_choice => ProbeMode::EveryCall,
            _ => ProbeMode::EvictingOnly,
        };
        let is_auto = self.mode == RequestedMode::Auto;
        let auto = is_auto.then(|| AutoMode::new(self.budget, has_choice));
        let reader = Reader::new(pid, words, &plan, load_bias);
        let subject = Subject {
            profiler: self.profiler.clone(),
            process: process.clone(),
            executable: executable.clone(),
        };
        let around = Surroundings {
            keeper: self.shared.keeper().cloned().map_err(str::to_owned),
            requests: self.shared.requests().clone(),
            budget: self.budget.share(),
        };
        let server = Server {
            pid,
            exe: executable,
            load_bias,
            plan: plan.clone(),
        };
        let for_now = |error: ProbeError| match error {
            ProbeError::Gone(_) => Refusal::Gone,
            error => Refusal::for_now(error),
        };
        let mut attachment = Attachment::new(&self.probes, server).map_err(for_now)?;
        attachment.take_out_left();
        let sources = Sources {
            probing: Probing::new(plan, attachment, self.costs, self.budget),
            reader,
            sockets: Sockets::new(pid, self.sockets.clone()),
        };
        let mut watched = Watched::new(label, subject, around, sources, self.stall_threshold);
        watched.begin(mode, auto).map_err(for_now)?;
        // The program that was planned may have been replaced meanwhile; then no probe stays.
        watched.read()?;
        watched.log_attached();
        Ok(watched)
    }

    /// Reads a server until it has ended, and replaces its `published` state.
    fn read(&self, mut watched: Watched, mut published: Arc<ExportedServer>) {
        let mut pace = self.pace.of_server();
        let mut next = Instant::now();
        let mut has_news = false;
        let mut has_lookout = true;
        while !self.stop.wait_until(next) {
            let read = watched.read();
            if let Err(MemoryError::Gone) = read {
                watched.log_ended();
                self.shared.withdraw(&published);
                // This tells any caller who waits for an answer.
                drop(self.shared.requests().take(&published.label));
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
        watched.finish_records();
    }
}
