//! Reads a server: what the programs have counted, its own counters, its main thread's times, and its connections.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use evictscope_host::{MemoryError, Quotas, Words};
use evictscope_model::{Member, ProcessAddress};
use evictscope_plan::ProbePlan;
use evictscope_probes::{Attachment, Ports, Probed, SocketIterator};
use evictscope_telemetry::{Candidate, Counted, LookPace, MemberValues, Observed, POOL_BYTES, Snapshot, SocketLook};
use rustix::time::{ClockId, clock_gettime};

use super::commands::CommandReader;
use super::expired::ExpiredKeys;
use super::lookout::{Lookout, MainThread};
use super::memory_parts::{Activity, MemorySource, PartsReader};
use super::refusals;
use crate::clock::{monotonic, since_1970};
use crate::keys::{KeyspaceLayout, Memory, Walk};

/// The shortest time between two looks for the probes in the server's code.
const CODE_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two searches for the counts of errors.
const SEARCH_INTERVAL: Duration = Duration::from_secs(10);

/// Reads one server, again and again. Everything that it needs is already open, so that a lack of file descriptors
/// stops no reading, and no later process with the same pid is read.
pub struct ServerReader {
    pid: u32,
    memory: Arc<Words>,
    plan: Arc<ProbePlan>,
    load_bias: u64,
    /// How its keys are laid out; `None` if its version is not known.
    layout: Option<&'static KeyspaceLayout>,
    /// Which words belong to which member.
    members: Vec<(Member, Range<usize>)>,
    /// `None` if the kernel does not report its times.
    main_thread: Option<MainThread>,
    /// Its errors at the last reading, and how many of these were refusals, if that is known.
    refusals: (u64, Option<u64>),
    /// Where it has the address of its counts of errors; and until when it is not searched for again.
    errors: Option<u64>,
    searched: Duration,
    /// Those of its keys that have expired.
    pub expired: ExpiredKeys,
    parts: PartsReader,
    quotas: Quotas,
    /// When quotas were last read: how long the main thread had waited for a CPU until then, and what they said.
    throttled: Option<(u64, Option<Duration>)>,
    counted: Counted,
    /// When the probes in its code were last looked for.
    code_read: Duration,
    observed: Observed,
    /// Until when `observed` was added up.
    observed_until: Duration,
}

impl ServerReader {
    /// Returns a reader of the process whose memory is `words`. Its executable has `plan`, and was loaded with
    /// `load_bias`.
    pub fn new(pid: u32, mut words: Words, plan: &Arc<ProbePlan>, load_bias: u64) -> Self {
        // If nothing else is known, this shows whether the program still runs.
        let mut addresses = vec![plan.identity.entry_point.at(load_bias)];
        let mut members = Vec::new();
        for member in &plan.members {
            let begin = addresses.len();
            addresses.extend(member.words().map(|address| address.at(load_bias)));
            members.push((member.member, begin..addresses.len()));
        }
        words.choose(&addresses);
        Self {
            pid,
            memory: Arc::new(words),
            plan: plan.clone(),
            load_bias,
            layout: KeyspaceLayout::of(&plan.identity).ok(),
            members,
            main_thread: MainThread::of(pid),
            refusals: (0, None),
            errors: (plan.member(Member::Errors)).map(|errors| errors.address.at(load_bias).get()),
            searched: Duration::ZERO,
            expired: ExpiredKeys::new(pid, plan, load_bias),
            parts: PartsReader::default(),
            quotas: Quotas::of(pid),
            throttled: None,
            counted: Counted::default(),
            code_read: Duration::ZERO,
            observed: Observed::default(),
            observed_until: monotonic(),
        }
    }

    /// Returns what reads its counters of commands, if they were found.
    pub fn commands(&self) -> Option<CommandReader> {
        CommandReader::of(&self.plan, self.load_bias)
    }

    pub fn words(&self) -> &Words {
        &self.memory
    }

    /// Adds up for how long eviction calls were observed until `now`: call it when that is about to change.
    pub fn count_observed(&mut self, now: Duration, probed: Probed) {
        let elapsed = now.saturating_sub(self.observed_until);
        self.observed_until = now;
        if probed != Probed::Nothing {
            self.observed.evicting += elapsed;
        }
        if probed == Probed::Every {
            self.observed.noop += elapsed;
        }
    }

    /// Reads the server. If it does nothing, and `may_be_calm` says that nobody waits for what it does, reads only its
    /// main thread and returns `None`.
    ///
    /// # Errors
    ///
    /// Fails with [`MemoryError::Gone`] if the process has ended or runs another program. If its memory cannot be read
    /// for another reason, its members are missing from the snapshot.
    pub fn read(
        &mut self,
        attachment: &Attachment,
        may_be_calm: bool,
    ) -> Result<Option<(Snapshot, Option<MemoryError>)>, MemoryError> {
        let at = monotonic();
        let followed = self.main_thread.as_mut().and_then(|thread| thread.read(at));
        if may_be_calm && followed.is_some_and(|followed| !followed.is_due) {
            return Ok(None);
        }
        if let (Some(thread), Some(followed)) = (&mut self.main_thread, &followed) {
            thread.read_all(followed);
        }
        self.count_observed(at, attachment.covered().eviction);
        attachment.read(&mut self.counted);
        let (members, failed) = match self.memory.read() {
            Ok(words) => (Some(self.members_in(&words)), None),
            Err(MemoryError::Gone) => return Err(MemoryError::Gone),
            Err(error) => (None, Some(error)),
        };
        let is_due = at.saturating_sub(self.code_read) >= CODE_INTERVAL;
        if is_due {
            self.code_read = at;
        }
        let unrun = is_due.then(|| attachment.unrun(&self.memory)).flatten();
        let candidate = (members.as_ref()).and_then(|members| self.candidate(members, at));
        let memory = Memory::of(&self.memory, Walk::Reading);
        let refusals = members.as_ref().and_then(|members| self.refusals(&memory, at, members));
        let activity = if !may_be_calm {
            Activity::Pressing
        } else if self.is_calm() {
            Activity::Calm
        } else {
            Activity::Usual
        };
        let (plan, load_bias, layout) = (&*self.plan, self.load_bias, self.layout);
        let source = members.as_ref().map(|members| MemorySource { memory: &memory, members, plan, load_bias, layout });
        let not_counted = source.as_ref().and_then(MemorySource::not_counted);
        let parts = source.as_ref().and_then(|source| self.parts.read(at, source, activity));
        let times = followed.map(|followed| followed.times);
        let snapshot = Snapshot {
            at,
            is_resting: followed.and_then(|followed| followed.reading.is_resting),
            child_ns: self.main_thread.as_ref().and_then(|thread| thread.scheduling.child_ns()),
            rests: self.main_thread.as_ref().map_or_else(Vec::new, |thread| thread.rest.rests()),
            look: None,
            counted: self.counted.clone(),
            members,
            refusals,
            not_counted,
            memory: parts,
            candidate,
            expired: self.expired.follow(at, &self.memory, activity == Activity::Calm),
            times,
            throttled: times.and_then(|times| self.throttled(times.waiting_ns)),
            observed: self.observed,
            spent_ns: 0.0,
            unrun,
        };
        Ok(Some((snapshot, failed)))
    }

    /// Reads it once. Returns what cannot be read, and why.
    pub fn lacks(&mut self) -> Vec<String> {
        let memory = self.memory.read().err().map(|error| error.to_string());
        let no_times = "the kernel does not report the times of its main thread (CONFIG_SCHED_INFO)";
        let times = self.main_thread.is_none().then(|| no_times.to_owned());
        memory.into_iter().chain(times).collect()
    }

    /// Returns whether there is nothing to read soon, unless somebody waits for what the server does.
    pub fn is_calm(&self) -> bool {
        self.main_thread.as_ref().is_some_and(|thread| thread.is_calm)
    }

    /// Waits until there is something to read of a calm server. Returns whether the lookout could wait for it.
    pub fn wait(&mut self, lookout: &Lookout) -> bool {
        let followed = self.main_thread.take().and_then(|thread| lookout.follow(thread));
        let could_wait = followed.is_some();
        self.main_thread = followed.or_else(|| MainThread::of(self.pid));
        could_wait
    }

    /// Returns how many commands it has refused. Reads that only after it has answered an error.
    fn refusals(&mut self, memory: &Memory, at: Duration, members: &MemberValues) -> Option<u64> {
        let errors = members.get(Member::StatTotalErrorReplies)?;
        match self.refusals {
            _ if errors == 0 => self.refusals = (0, Some(0)),
            (before, Some(_)) if before == errors => {}
            _ => {
                if self.errors.is_none() && at >= self.searched {
                    self.searched = at + SEARCH_INTERVAL;
                    self.errors = self.search_errors(memory, errors);
                }
                let refusals = (self.errors).and_then(|tree| refusals::count(memory, tree));
                self.refusals = (errors, refusals);
            }
        }
        self.refusals.1
    }

    fn search_errors(&self, memory: &Memory, errors: u64) -> Option<u64> {
        let address = |member| self.plan.member(member).map(|found| found.address.at(self.load_bias).get());
        let first = Member::of_server().filter_map(address).min()?;
        refusals::search(memory, first, errors, address(Member::StatTotalErrorReplies)?)
    }

    /// Reads the eviction pool, if the policy may have one. That takes one more system call.
    fn candidate(&self, members: &MemberValues, at: Duration) -> Option<Candidate> {
        let policy = members.policy()?;
        let unit = self.plan.identity.idle_time_unit()?;
        let address = ProcessAddress::new(members.get(Member::EvictionPool)?);
        let mut pool = [0; POOL_BYTES];
        let is_read = self.memory.fill(address, &mut pool);
        let unix_time = since_1970() + at;
        is_read.then(|| Candidate::in_pool(&pool, policy, unit, unix_time))?
    }

    /// Returns for how long its quotas were used up. Reads them only if it has waited for a CPU since, as a thread does
    /// whose quota is used up.
    fn throttled(&mut self, waiting_ns: u64) -> Option<Duration> {
        if self.throttled.is_none_or(|(waited, _)| waited != waiting_ns) {
            self.throttled = Some((waiting_ns, self.quotas.throttled()));
        }
        self.throttled?.1
    }

    fn members_in(&self, words: &[u64]) -> MemberValues {
        let mut members = MemberValues::default();
        let read = self.members.iter().filter_map(|(member, range)| Some((*member, words.get(range.clone())?)));
        read.for_each(|(member, words)| members.set(member, words));
        members
    }
}

pub struct Sockets {
    pid: u32,
    /// `None` if this kernel cannot look.
    iterator: Option<SocketIterator>,
    ports: Ports,
    pace: LookPace,
    /// Whether a look has failed, and that was logged.
    has_failed: bool,
}

impl Sockets {
    pub fn new(pid: u32, iterator: Option<SocketIterator>) -> Self {
        Self { pid, iterator, ports: Ports::default(), pace: LookPace::default(), has_failed: false }
    }

    /// Looks, if that is due at a reading. `is_pressing` says whether the server evicts, or requests wait.
    pub fn look(&mut self, now: &Snapshot, is_pressing: bool) -> Option<SocketLook> {
        let iterator = self.iterator.as_ref()?;
        if !self.pace.is_due(now, is_pressing) {
            return None;
        }
        if let Some(members) = &now.members {
            let is_cluster = members.get(Member::ClusterEnabled);
            self.ports.is_cluster = is_cluster.map(|enabled| enabled != 0);
            let bus = members.get(Member::ClusterPort).filter(|port| *port != 0);
            self.ports.bus = bus.and_then(|port| u16::try_from(port).ok());
        }
        let begun = own_cpu_time();
        let looked = iterator.look(self.pid, &mut self.ports);
        self.pace.looked(now.at, own_cpu_time().saturating_sub(begun));
        match looked {
            Ok(look) => {
                self.has_failed = false;
                Some(look)
            }
            // The next reading says so.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(pid = self.pid, "how long its clients wait cannot be seen: {error}");
                }
                None
            }
        }
    }
}

fn own_cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
