//! What is published about one server, and what of it may be exported. Values that are unknown or not trusted are not.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_abi::{CycleStats, CycleType, ResultKind};
use evictscope_host::{Container, ContainerName};
use evictscope_model::Member;
use evictscope_plan::{EVICTION_CALL, EXPIRE_CYCLE, Item, ProbePlan, TracedFunction};
use evictscope_records::{Ending, RecordId};
use evictscope_telemetry::{
    BrokenInvariant, Burst, Candidate, CommandLog, Cycle, Margins, MemberValues, MemoryParts, ProbeMode, ServerState,
    StallCause, Timeline,
};
use parking_lot::{Mutex, MutexGuard};

/// The types of cycles that consist of two jobs, by name. All other cycles have only the types for keys.
const TYPES_OF_JOBS: [(&str, CycleType); 4] = [
    ("slow", CycleType::Slow),
    ("fast", CycleType::Fast),
    ("slow_fields", CycleType::SlowFields),
    ("fast_fields", CycleType::FastFields),
];
/// How many of them are for keys: the first ones.
pub(crate) const OF_KEYS: usize = 2;

/// How often a server lost a tenth of its keys in a minute, by how they went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names are values of a label")]
pub struct KeyLosses {
    pub evicted: u64,
    pub expired: u64,
    pub removed: u64,
}

/// What is exported about one server.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the names of some say what they are")]
pub struct ExportedServer {
    /// Value of the label `server`; no two servers have the same.
    pub label: String,
    pub pid: u32,
    /// The name that it was started with.
    pub command: String,
    /// Its executable, as the process sees it.
    pub exe: PathBuf,
    pub container: Container,
    /// The names of that container and its pod, if found.
    pub container_name: Option<ContainerName>,
    pub plan: Arc<ProbePlan>,
    pub mode: ProbeMode,
    /// Why the part of its plan about eviction calls was withdrawn, if it was: nothing that depends on that part is
    /// then exported.
    pub withdrawn: Option<BrokenInvariant>,
    /// The same for the expire cycle.
    pub cycles_withdrawn: Option<BrokenInvariant>,
    /// What the probes cost, as a share of the main thread, in the last ten seconds.
    pub overhead_ratio: Option<f64>,
    /// The most that they may cost, likewise.
    pub overhead_budget_ratio: f64,
    /// Breakpoints in its code that belong to other tools or were left behind.
    pub foreign_breakpoints: usize,
    /// Whether probes are missing now because placing them would hold up the host.
    pub is_obstructed: bool,
    /// Whether its expired keys cannot be sampled: how it lays out its databases is not known.
    pub knows_no_expired: bool,
    /// How often it has lost its keys; `None` if they were not counted.
    pub key_losses: Option<KeyLosses>,
    /// What was counted since it was found.
    pub state: ServerState,
    /// Its phases and bursts; `None` if its evicting calls are not seen.
    pub cycle: Option<Cycle>,
    /// Its last ten minutes; `None` if its evicting calls are not seen. Too large to be copied each time, so the run
    /// loop keeps using the same one.
    pub timeline: Option<Arc<Mutex<Timeline>>>,
    /// What its commands took; `None` if their counters were not found.
    pub commands: Option<Arc<Mutex<CommandLog>>>,
    /// What to add to a monotonic time to get the time since 1970, at its last reading: all that is shown is dated by
    /// this.
    pub since_1970: Duration,
    /// When its last recorded bursts began, monotonic, and the names of the records.
    pub records: Arc<VecDeque<(Duration, RecordId)>>,
    /// When it ended, monotonic, and how; `None` while it lives, or if its process executes another program.
    pub ended: Option<(Duration, Ending)>,
    /// When all this was read.
    pub read: Instant,
}

/// Older readings are not exported: something holds up the thread that reads the server.
const STALE: Duration = Duration::from_secs(5);

impl ExportedServer {
    /// Returns whether the members of `server` are where the plan says, as far as is known.
    pub(crate) fn trusts_members(&self) -> bool {
        !self.withdrawn.is_some_and(BrokenInvariant::disproves_members)
    }

    /// Returns the values that were last read from it, as far as they can be trusted.
    pub(crate) fn members(&self) -> MemberValues {
        let mut members = self.state.members.unwrap_or_default();
        members.retain(|member| match member {
            // After a failed check of the allocator, this counter may be the wrong one.
            Member::UsedMemory => self.withdrawn != Some(BrokenInvariant::Allocator),
            _ => self.trusts_members(),
        });
        members
    }

    /// Returns the best key in its eviction pool, if that and the policy are known.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        self.state.candidate.filter(|_| self.trusts_members())
    }

    /// Returns whether it is known when the server evicts: by its probes, or by its own counter of evicted keys.
    fn follows_evictions(&self) -> bool {
        self.withdrawn.is_none_or(BrokenInvariant::leaves_counters)
    }

    pub(crate) fn cycle(&self) -> Option<&Cycle> {
        self.cycle.as_ref().filter(|_| self.follows_evictions())
    }

    pub(crate) fn not_counted(&self) -> Option<u64> {
        self.state.not_counted.filter(|_| self.trusts_members())
    }

    pub(crate) fn memory_parts(&self) -> Option<MemoryParts> {
        self.state.memory.filter(|_| self.trusts_members() && self.withdrawn != Some(BrokenInvariant::Allocator))
    }

    /// Returns what the next evictions can be predicted from; `None` if there will be none, because the limit does not
    /// apply.
    pub(crate) fn forecasts(&self) -> Option<&Margins> {
        self.cycle().map(|cycle| &cycle.margins).filter(|_| self.members().limit_applies() != Some(false))
    }

    /// Returns in how many seconds memory reaches its limit if it keeps growing as before: at the earliest, likely, and
    /// at the latest. Each is `None` if it does not grow.
    pub(crate) fn reaches_limit_in(&self) -> [Option<f64>; 3] {
        let members = self.members();
        let limit = members.get(Member::Maxmemory).filter(|limit| *limit > 0);
        let growth = self.forecasts().and_then(Margins::growth);
        let used = members.get(Member::UsedMemory);
        let room = limit
            .zip(used)
            .map(|(limit, used)| limit.saturating_sub(used.saturating_sub(self.not_counted().unwrap_or_default())));
        growth.zip(room).map_or([None; 3], |(growth, room)| growth.fills(room))
    }

    /// Returns the last finished bursts, dated, each with the name of its record, if there is one; the oldest first.
    pub(crate) fn bursts(&self) -> impl DoubleEndedIterator<Item = (Burst, Option<&RecordId>)> {
        self.cycle().into_iter().flat_map(Cycle::recent).map(|burst| {
            let record = self.records.iter().find(|(started, _)| *started == burst.started);
            (burst.dated(self.since_1970), record.map(|(_, id)| id))
        })
    }

    pub(crate) fn timeline(&self) -> Option<MutexGuard<'_, Timeline>> {
        Some(self.timeline.as_ref().filter(|_| self.follows_evictions())?.lock())
    }

    /// Returns what its commands took, if that is known and can be trusted.
    pub(crate) fn commands(&self) -> Option<MutexGuard<'_, CommandLog>> {
        let commands = self.commands.as_ref().filter(|_| self.trusts_members())?;
        Some(commands.lock()).filter(|log| log.at.is_some())
    }

    pub(super) fn is_stale(&self) -> bool {
        self.read.elapsed() > STALE
    }

    /// Returns the eviction call in the plan, unless that was withdrawn.
    pub(crate) fn eviction_call(&self) -> Option<&TracedFunction> {
        self.plan.function(EVICTION_CALL.description).filter(|_| self.withdrawn.is_none())
    }

    pub(crate) fn probes_every_call(&self) -> bool {
        let call = self.eviction_call();
        self.mode == ProbeMode::EveryCall && call.is_some_and(|call| call.every_call().is_some())
    }

    /// Returns the eviction call, if evicting calls are counted now. Without a goal site, they cannot be told from
    /// no-op calls; without done sites, their ends are seen only if every call is probed.
    pub(crate) fn evicting_call(&self) -> Option<&TracedFunction> {
        let sees_ends = |call: &TracedFunction| self.probes_every_call() || call.timed_span().is_some();
        let call = self.eviction_call()?;
        (call.has_inner_site() && sees_ends(call)).then_some(call)
    }

    /// Returns how many evicting calls found nothing to evict; `None` if their results are not known.
    pub(crate) fn failed_calls(&self) -> Option<u64> {
        let call = self.evicting_call()?;
        let are_told = self.plan.not_found.iter().all(|missing| missing.item != Item::Result(call.kind));
        let results = &self.state.counted.evictions.evicting_results;
        are_told.then_some(results[ResultKind::Fail as usize])
    }

    /// Returns how many commands were refused because nothing could be evicted; `None` if that is not known.
    pub(crate) fn refused(&self) -> Option<u64> {
        self.state.refused().filter(|_| self.trusts_members())
    }

    /// Returns the expire cycle in the plan, if it is timed: it is probed in every mode, unless that part of the plan
    /// was withdrawn.
    pub(crate) fn expire_cycle(&self) -> Option<&TracedFunction> {
        let function = self.plan.function(EXPIRE_CYCLE.description)?;
        let is_timed = function.timed_span().is_some() && self.cycles_withdrawn.is_none();
        is_timed.then_some(function)
    }

    /// Returns the types of timed expire cycles that can be told apart, by name, those for keys first. If the plan does
    /// not know the type, all are of type `unknown`.
    pub(crate) fn cycles(&self) -> impl Iterator<Item = (&'static str, &CycleStats)> {
        let start = self.expire_cycle().and_then(|function| function.plan.expire()?.starts.first());
        let types = match start.map(|start| (&start.cycle_type, &start.job)) {
            Some((Some(_), Some(_))) => &TYPES_OF_JOBS[..],
            Some((Some(_), None)) => &TYPES_OF_JOBS[..OF_KEYS],
            Some((None, _)) => &[("unknown", CycleType::Unknown)],
            None => &[],
        };
        let by_type = &self.state.counted.expires.cycles;
        types.iter().map(|(name, of_type)| (*name, &by_type[*of_type as usize]))
    }

    /// Returns whether stalls can be put down to this cause: to evictions and expire cycles only if these are timed.
    pub(crate) fn tells_stalls_by(&self, cause: StallCause) -> bool {
        match cause {
            StallCause::Eviction => self.evicting_call().is_some(),
            StallCause::Expire => self.expire_cycle().is_some(),
            _ => true,
        }
    }
}
