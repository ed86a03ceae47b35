//! Reads a server: what the programs have counted, its own counters, and its main thread's times.

use std::time::Duration;

use evictscope_host::{MemoryError, Scheduling, Words};
use evictscope_plan::{Counters, Member, ProbePlan, ProcessAddress};
use evictscope_probes::{Attachment, Probed};
use evictscope_telemetry::{
    ClientBuffers, Counted, ExpiryMembers, Members, Observed, Snapshot, ThreadTimes,
};

use super::clock::{both, monotonic};

/// Reads one server, again and again. What it needs is open, so that a lack of file descriptors stops no
/// reading, and no later process with the same pid is read.
pub struct Reader {
    words: Words,
    members: MemberWords,
    scheduling: Option<Scheduling>,
    counted: Counted,
    observed: Observed,
    /// Until when `observed` was added up.
    observed_until: Duration,
}

/// Which of the words that are read is which member.
struct MemberWords {
    maxmemory: Option<usize>,
    maxmemory_policy: Option<usize>,
    commands: Option<usize>,
    evicted_keys: Option<usize>,
    expired_keys: Option<usize>,
    client_buffers: Option<usize>,
    used_memory: Option<std::ops::Range<usize>>,
    hz: Option<usize>,
    active_expire_effort: Option<usize>,
    expiry: ExpiryWords,
}

/// Which of the words is which member that tells of expiry.
struct ExpiryWords {
    stale_ratio: Option<usize>,
    time_limit_hits: Option<usize>,
    cycle_us: Option<usize>,
}

impl Reader {
    /// Returns a reader of the process whose memory `words` is, whose executable has `plan` and was loaded with
    /// `load_bias`.
    pub fn new(pid: u32, mut words: Words, plan: &ProbePlan, load_bias: u64) -> Self {
        // Where nothing else is known, this tells whether the program still runs.
        let mut addresses = vec![plan.identity.entry_point.at(load_bias)];
        let members = MemberWords::of(plan, load_bias, &mut addresses);
        words.choose(&addresses);
        Self {
            words,
            members,
            scheduling: Scheduling::of(pid),
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

    /// Reads the server.
    ///
    /// # Errors
    ///
    /// Fails with [`MemoryError::Gone`] where the process has ended or runs another program. Where its memory cannot
    /// be read for another reason, its members are missing from the snapshot.
    pub fn read(
        &mut self,
        attachment: &Attachment,
    ) -> Result<(Snapshot, Option<MemoryError>), MemoryError> {
        let (at, unix_time) = both();
        self.count_observed(at, attachment.covered().eviction);
        attachment.read(&mut self.counted);
        let (members, failed) = match self.words.read() {
            Ok(words) => (Some(self.members.values(&words)), None),
            Err(MemoryError::Gone) => return Err(MemoryError::Gone),
            Err(error) => (None, Some(error)),
        };
        let times = self.scheduling.as_ref().and_then(Scheduling::times_ns);
        let is_resting = self.scheduling.as_ref().and_then(Scheduling::is_resting);
        let snapshot = Snapshot {
            at,
            is_resting,
            look: None,
            unix_time,
            counted: self.counted.clone(),
            members,
            times: times.map(|(cpu_ns, waiting_ns)| ThreadTimes { cpu_ns, waiting_ns }),
            observed: self.observed,
        };
        Ok((snapshot, failed))
    }
}

impl MemberWords {
    /// Appends the addresses of the members that the plan knows.
    fn of(plan: &ProbePlan, load_bias: u64, addresses: &mut Vec<ProcessAddress>) -> Self {
        let mut member = |member, words: u64| {
            let first = plan.member(member)?.address;
            let index = addresses.len();
            addresses.extend((0..words).map(|word| first.wrapping_add(word * 8).at(load_bias)));
            Some(index)
        };
        let (maxmemory, commands) = (
            member(Member::Maxmemory, 1),
            member(Member::StatNumcommands, 1),
        );
        let maxmemory_policy = member(Member::MaxmemoryPolicy, 1);
        let evicted_keys = member(Member::StatEvictedkeys, 1);
        let expired_keys = member(Member::StatExpiredkeys, 1);
        let client_buffers = member(Member::StatClientsTypeMemory, 4);
        let hz = member(Member::ConfigHz, 1);
        let active_expire_effort = member(Member::ActiveExpireEffort, 1);
        let expiry = ExpiryWords {
            stale_ratio: member(Member::StatExpiredStalePerc, 1),
            time_limit_hits: member(Member::StatExpiredTimeCapReachedCount, 1),
            cycle_us: member(Member::StatExpireCycleTimeUsed, 1),
        };
        let counters = plan.member(Member::UsedMemory);
        let counters = counters.map(|used| used.counters.unwrap_or(Counters::one(used.address)));
        let used_memory = counters.map(|counters| {
            let begin = addresses.len();
            let counter = |index: u64| counters.first.wrapping_add(index * counters.stride);
            let counted = (0..counters.most).map(counter).chain(counters.overflow);
            addresses.extend(counted.map(|address| address.at(load_bias)));
            begin..addresses.len()
        });
        Self {
            maxmemory,
            maxmemory_policy,
            commands,
            evicted_keys,
            expired_keys,
            client_buffers,
            used_memory,
            hz,
            active_expire_effort,
            expiry,
        }
    }

    fn values(&self, words: &[u64]) -> Members {
        let word = |index: Option<usize>| words.get(index?).copied();
        let buffers = |first: usize| {
            Some(ClientBuffers {
                normal: *words.get(first)?,
                replica: *words.get(first + 1)?,
                pubsub: *words.get(first + 2)?,
                primary: *words.get(first + 3)?,
            })
        };
        let int = |index: Option<usize>| word(index).map(|word| word as u32);
        let counters = self.used_memory.clone().and_then(|range| words.get(range));
        Members {
            maxmemory: word(self.maxmemory),
            maxmemory_policy: int(self.maxmemory_policy),
            commands: word(self.commands),
            evicted_keys: word(self.evicted_keys),
            expired_keys: word(self.expired_keys),
            client_buffers: self.client_buffers.and_then(buffers),
            hz: int(self.hz),
            active_expire_effort: int(self.active_expire_effort),
            expiry: self.expiry.values(words),
            // Threads can free what others allocated, so a counter can be negative; those of threads that do not
            // exist are 0.
            used_memory: counters.map(|counters| {
                counters
                    .iter()
                    .fold(0_u64, |sum, one| sum.wrapping_add(*one))
            }),
        }
    }
}

impl ExpiryWords {
    fn values(&self, words: &[u64]) -> ExpiryMembers {
        let word = |index: Option<usize>| words.get(index?).copied();
        ExpiryMembers {
            stale_ratio: word(self.stale_ratio).and_then(stale_ratio),
            time_limit_hits: word(self.time_limit_hits),
            cycle_us: word(self.cycle_us),
        }
    }
}

/// Returns the `double` with these bits, where it is a share.
fn stale_ratio(bits: u64) -> Option<f64> {
    let ratio = f64::from_bits(bits);
    (0.0..=1.0).contains(&ratio).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::stale_ratio;

    #[test]
    fn a_stale_ratio_is_a_share() {
        for share in [0.0_f64, 0.0512, 1.0] {
            assert_eq!(stale_ratio(share.to_bits()), Some(share));
        }
        for none in [-0.01_f64, 1.01, 5.12, f64::NAN, f64::INFINITY] {
            assert_eq!(stale_ratio(none.to_bits()), None, "{none}");
        }
        // A whole number that is not one.
        assert_eq!(stale_ratio(u64::MAX), None);
    }
}
