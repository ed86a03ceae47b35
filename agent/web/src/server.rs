//! What the run loop hands to the HTTP server: the servers, and the time of its last turn.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evictscope_host::Container;
use evictscope_plan::{Member, ProbePlan};
use evictscope_records::{Keeper, RecordId};
use evictscope_telemetry::{
    BrokenInvariant, Burst, Cycle, Members, ProbeMode, ServerState, Timeline,
};
use tokio::sync::watch;

use super::requests::Requests;
use super::unwatched::Unwatched;

/// What is exported of one server.
#[derive(Clone, Debug)]
pub struct ExportedServer {
    /// Value of the label `server`; no two servers have the same.
    pub label: String,
    /// Process id.
    pub pid: u32,
    /// The name that it was started by.
    pub command: String,
    /// Its executable, as the process sees it.
    pub exe: PathBuf,
    /// The container that it is in.
    pub container: Container,
    /// The name of that container, where it was found.
    pub container_name: Option<String>,
    /// What is probed in it.
    pub plan: Arc<ProbePlan>,
    /// The probe mode that it is in now.
    pub mode: ProbeMode,
    /// Why what its plan says of eviction calls was withdrawn, where it was: then nothing that rests on that is
    /// exported.
    pub withdrawn: Option<BrokenInvariant>,
    /// The same of the expire cycle.
    pub cycles_withdrawn: Option<BrokenInvariant>,
    /// What the probes cost, as a share of the main thread, in the last ten seconds.
    pub overhead_ratio: Option<f64>,
    /// The most that they may cost, likewise.
    pub overhead_budget_ratio: f64,
    /// Breakpoints in its code that are of other tools, or were left.
    pub foreign_breakpoints: usize,
    /// What was counted since it was found.
    pub state: ServerState,
    /// Its phases and bursts; `None` where its evicting calls are not seen.
    pub cycle: Option<Cycle>,
    /// Its last ten minutes; `None` where its evicting calls are not seen. Too large to be copied each
    /// time, so the run loop goes on with the same one.
    pub timeline: Option<Arc<Mutex<Timeline>>>,
    /// When its last recorded bursts began, since 1970, and the names of the records.
    pub records: Arc<VecDeque<(Duration, RecordId)>>,
    /// When all this was read.
    pub read: Instant,
}

impl ExportedServer {
    /// Tells whether the members of `server` are where the plan says, as far as is known.
    pub(super) fn trusts_members(&self) -> bool {
        !self
            .withdrawn
            .is_some_and(BrokenInvariant::disproves_members)
    }

    /// Returns the values that were last read of it, as far as they can be trusted.
    pub(super) fn members(&self) -> Members {
        let mut members = self.state.members.unwrap_or_default();
        members.retain(|member| match member {
            // A failed check of the allocator says that this counter may be the wrong one.
            Member::UsedMemory => self.withdrawn != Some(BrokenInvariant::Allocator),
            _ => self.trusts_members(),
        });
        members
    }

    /// Returns phases and bursts, where they may be exported: they rest on the plan.
    pub(super) fn cycle(&self) -> Option<&Cycle> {
        self.cycle.as_ref().filter(|_| self.withdrawn.is_none())
    }

    /// Returns the name of the record of a burst, where there is one.
    pub(super) fn record_of(&self, burst: &Burst) -> Option<&RecordId> {
        let mut records = self.records.iter();
        let record = records.find(|(started, _)| *started == burst.started);
        record.map(|(_, id)| id)
    }

    /// Returns the last ten minutes, where they may be exported.
    pub(super) fn timeline(&self) -> Option<MutexGuard<'_, Timeline>> {
        let timeline = self
            .timeline
            .as_ref()
            .filter(|_| self.withdrawn.is_none())?;
        // Numbers only, each of which is right even if a writer panicked.
        Some(timeline.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Older readings are not exported: something holds up the thread that reads the server.
const STALE: Duration = Duration::from_secs(5);

/// What the threads that watch share with the HTTP server: the servers, and when the loop last turned. Clones
/// share the same view; no side waits for another longer than it takes to exchange a pointer.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Published>);

#[derive(Debug)]
struct Published {
    /// By label.
    servers: Mutex<BTreeMap<String, Arc<ExportedServer>>>,
    is_ready: watch::Sender<bool>,
    turn: watch::Sender<Turn>,
    /// What is asked of the servers' threads.
    requests: Requests,
    /// Where records are; `None` where none are kept, and why.
    keeper: Result<Keeper, String>,
    /// `None` before the first look.
    unwatched: watch::Sender<Option<Vec<Unwatched>>>,
}

/// The last turn of the loop.
#[derive(Clone, Copy, Debug)]
struct Turn {
    /// By the monotonic clock, which nobody sets back.
    at: Instant,
    /// The same moment since 1970; `None` before the first turn.
    unix_time: Option<Duration>,
}

impl Default for Shared {
    /// Returns no servers, a loop that has yet to turn for the first time, and no records.
    fn default() -> Self {
        Self::new(Err("records are not kept".to_owned()))
    }
}

impl Shared {
    /// Returns no servers, and a loop that has yet to turn for the first time. `keeper` says where records are, or why
    /// none are kept.
    pub fn new(keeper: Result<Keeper, String>) -> Self {
        let turn = Turn {
            at: Instant::now(),
            unix_time: None,
        };
        Self(Arc::new(Published {
            servers: Mutex::default(),
            is_ready: watch::Sender::default(),
            turn: watch::Sender::new(turn),
            requests: Requests::default(),
            keeper,
            unwatched: watch::Sender::default(),
        }))
    }

    /// Returns what is asked of the servers' threads.
    pub fn requests(&self) -> &Requests {
        &self.0.requests
    }

    /// Returns where records are, or why none are kept.
    pub fn keeper(&self) -> Result<&Keeper, &str> {
        self.0.keeper.as_ref().map_err(String::as_str)
    }

    /// Says that the loop has turned just now, which is `unix_time` since 1970. An agent is healthy
    /// while its loop says so every few seconds.
    pub fn turned(&self, unix_time: Duration) {
        let (at, unix_time) = (Instant::now(), Some(unix_time));
        self.0.turn.send_replace(Turn { at, unix_time });
    }

    /// Returns how long ago the loop turned, or this was made if it has not turned yet.
    pub fn since_last_turn(&self) -> Duration {
        self.0.turn.borrow().at.elapsed()
    }

    /// Returns when the loop last turned, since 1970; `None` before the first turn.
    pub(super) fn last_turn(&self) -> Option<Duration> {
        self.0.turn.borrow().unix_time
    }

    /// Replaces the list of servers that run here and are not watched.
    pub fn set_unwatched(&self, servers: Vec<Unwatched>) {
        self.0.unwatched.send_replace(Some(servers));
    }

    /// Returns the servers that run here and are not watched; `None` before the first look.
    pub(super) fn unwatched(&self) -> Option<Vec<Unwatched>> {
        self.0.unwatched.borrow().clone()
    }

    /// Replaces what is published of one server.
    pub fn publish(&self, server: ExportedServer) {
        self.lock().insert(server.label.clone(), Arc::new(server));
    }

    /// Withdraws all that is published of the server with this label and process id: by now, another one may
    /// have the label.
    pub fn withdraw(&self, label: &str, pid: u32) {
        let mut servers = self.lock();
        if servers.get(label).is_some_and(|server| server.pid == pid) {
            servers.remove(label);
        }
    }

    /// Makes the agent ready: it has looked for servers, and has tried to attach to those that it found.
    pub fn set_ready(&self) {
        self.0.is_ready.send_replace(true);
    }

    /// Waits until the agent is ready.
    pub async fn ready(&self) {
        // Cannot fail: the sender lives as long as `self`.
        let _ = self
            .0
            .is_ready
            .subscribe()
            .wait_for(|is_ready| *is_ready)
            .await;
    }

    /// Returns the labels of the servers whose last reading is too old to be exported.
    pub fn stale(&self) -> Vec<String> {
        let servers = self.lock();
        let stale = servers.values().filter(|server| server.is_stale());
        stale.map(|server| server.label.clone()).collect()
    }

    /// Returns the servers by ascending pid; `None` until the agent is ready.
    pub(super) fn servers(&self) -> Option<Vec<Arc<ExportedServer>>> {
        if !*self.0.is_ready.borrow() {
            return None;
        }
        let servers = self.lock();
        let fresh = servers.values().filter(|server| !server.is_stale());
        let mut fresh: Vec<_> = fresh.cloned().collect();
        fresh.sort_by_key(|server| server.pid);
        Some(fresh)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ExportedServer>>> {
        // Each entry is put there whole.
        self.0
            .servers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ExportedServer {
    fn is_stale(&self) -> bool {
        self.read.elapsed() > STALE
    }
}
