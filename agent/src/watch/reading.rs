//! Reads a server: what the programs have counted, its own counters, and its main thread's times.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use evictscope_host::{MemoryError, Quotas, Scheduling, Words};
use evictscope_plan::{Member, ProbePlan, ProcessAddress};
use evictscope_probes::{Attachment, Probed};
use evictscope_telemetry::{
    Calm, Candidate, Counted, Members, Observed, POOL_BYTES, Rest, Snapshot, ThreadReading,
    ThreadTimes,
};

use super::clock::{both, monotonic};
use crate::keys::{self, Memory};

/// How often keys are counted at most: what they take on the average changes slowly.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Reads one server, again and again. What it needs is open, so that a lack of file descriptors stops no
/// reading, and no later process with the same pid is read.
pub struct Reader {
    memory: Memory,
    plan: Arc<ProbePlan>,
    load_bias: u64,
    /// Which of the words are which member.
    members: Vec<(Member, Range<usize>)>,
    scheduling: Option<Scheduling>,
    /// When keys were last counted, or might have been first: for as long growth is not known either.
    keys_counted: Duration,
    quotas: Quotas,
    /// For how long the main thread had waited for a CPU when they were last read, and what they said.
    throttled: Option<(u64, Option<Duration>)>,
    rest: Rest,
    calm: Calm,
    counted: Counted,
    observed: Observed,
    /// Until when `observed` was added up.
    observed_until: Duration,
}

impl Reader {
    /// Returns a reader of the process whose memory `words` is, whose executable has `plan` and was loaded with
    /// `load_bias`.
    pub fn new(pid: u32, mut words: Words, plan: &Arc<ProbePlan>, load_bias: u64) -> Self {
        // Where nothing else is known, this tells whether the program still runs.
        let mut addresses = vec![plan.identity.entry_point.at(load_bias)];
        let mut members = Vec::new();
        for member in &plan.members {
            let begin = addresses.len();
            addresses.extend(member.words().map(|address| address.at(load_bias)));
            members.push((member.member, begin..addresses.len()));
        }
        words.choose(&addresses);
        Self {
            memory: Memory(words),
            plan: plan.clone(),
            load_bias,
            members,
            scheduling: Scheduling::of(pid),
            keys_counted: monotonic(),
            quotas: Quotas::of(pid),
            throttled: None,
            rest: Rest::default(),
            calm: Calm::default(),
            counted: Counted::default(),
            observed: Observed::default(),
            observed_until: monotonic(),
        }
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

    /// Reads the server. Returns `None` where it does nothing, and `may_be_calm` tells that nobody waits for what it does: then only
    /// its main thread was read.
    ///
    /// # Errors
    ///
    /// Fails with [`MemoryError::Gone`] where the process has ended or runs another program. Where its memory cannot
    /// be read for another reason, its members are missing from the snapshot.
    pub fn read(
        &mut self,
        attachment: &Attachment,
        may_be_calm: bool,
    ) -> Result<Option<(Snapshot, Option<MemoryError>)>, MemoryError> {
        let (at, unix_time) = both();
        let thread = self.thread(at);
        let followed = thread.map(|thread| self.rest.follow(thread));
        let is_calm = thread.is_some_and(|thread| self.calm.is_calm(&thread));
        if is_calm && may_be_calm {
            return Ok(None);
        }
        self.count_observed(at, attachment.covered().eviction);
        attachment.read(&mut self.counted);
        let (members, failed) = match self.memory.0.read() {
            Ok(words) => (Some(self.members_in(&words)), None),
            Err(MemoryError::Gone) => return Err(MemoryError::Gone),
            Err(error) => (None, Some(error)),
        };
        let candidate = (members.as_ref()).and_then(|members| self.candidate(members, unix_time));
        let times = followed.map(|(times, _)| times);
        let snapshot = Snapshot {
            at,
            is_resting: thread.and_then(|thread| thread.is_resting),
            child_ns: self.scheduling.as_ref().and_then(Scheduling::child_ns),
            rested: followed.and_then(|(_, rested)| rested),
            look: None,
            unix_time,
            counted: self.counted.clone(),
            members,
            keys: None,
            candidate,
            times,
            throttled: times.and_then(|times| self.throttled(times.waiting_ns)),
            observed: self.observed,
        };
        Ok(Some((snapshot, failed)))
    }

    /// Counts the keys, where that is due.
    pub fn count_keys(&mut self, at: Duration) -> Option<u64> {
        if at.saturating_sub(self.keys_counted) < COUNT_INTERVAL {
            return None;
        }
        self.keys_counted = at;
        keys::count(&self.memory, &self.plan, self.load_bias)
    }

    /// Reads the eviction pool, where the policy may have one. That is one more call of the kernel.
    fn candidate(&self, members: &Members, unix_time: Duration) -> Option<Candidate> {
        let policy = members.policy()?;
        let unit = self.plan.identity.idle_time_unit()?;
        let address = ProcessAddress::new(members.get(Member::EvictionPool)?);
        let mut pool = [0; POOL_BYTES];
        let is_read = self.memory.0.fill(address, &mut pool);
        is_read.then(|| Candidate::in_pool(&pool, policy, unit, unix_time))?
    }

    /// Reads the main thread. Returns `None` where the process has ended, or the kernel does not tell.
    fn thread(&self, at: Duration) -> Option<ThreadReading> {
        let scheduling = self.scheduling.as_ref()?;
        let (cpu_ns, waiting_ns) = scheduling.times_ns()?;
        let is_resting = scheduling.is_resting();
        Some(ThreadReading {
            at,
            times: ThreadTimes { cpu_ns, waiting_ns },
            is_resting,
            // It costs more than the rest, and tells nothing of a thread that sleeps.
            sleeps: is_resting.is_none().then(|| scheduling.sleeps()).flatten(),
        })
    }

    /// Returns for how long its quotas were used up. They are read only where it has waited for a CPU since, as a thread does
    /// whose quota is used up.
    fn throttled(&mut self, waiting_ns: u64) -> Option<Duration> {
        if self
            .throttled
            .is_none_or(|(waited, _)| waited != waiting_ns)
        {
            self.throttled = Some((waiting_ns, self.quotas.throttled()));
        }
        self.throttled?.1
    }

    fn members_in(&self, words: &[u64]) -> Members {
        let mut members = Members::default();
        for (member, range) in &self.members {
            if let Some(words) = words.get(range.clone()) {
                members.set(*member, words);
            }
        }
        members
    }
}
