//! Snapshots of one server added up into totals that only grow, and whether they agree with its probe plan.

pub(crate) mod expire_audit;
pub(crate) mod invariant;
pub(crate) mod latencies;
pub(crate) mod main_thread;
pub(crate) mod refused;
pub(crate) mod slow_calls;
pub(crate) mod unhit;
pub(crate) mod use_clock;
pub(crate) mod withdrawal;

use std::time::Duration;

use evictscope_abi::{CallStats, CycleStats, CycleType, EVICTION, EXPIRE, Probe, bounds};
use evictscope_model::Member;

use self::expire_audit::{CycleCounts, ExpireAudit, ServerCounts};
use self::main_thread::{Spent, WorkAccount};
use self::refused::Refused;
use self::unhit::{HitReading, Unhit};
use self::use_clock::UseClock;
use crate::clients::stalls::{Inside, InsideCalls, StallCause, StallReading, Stalls};
use crate::clients::waits::ThreadSample;
use crate::{
    Candidate, Counted, ExpiredSample, HistogramTotals, HistogramView, LongestCalls, MainThreadTime, MemberValues,
    MemoryParts, Observed, Peers, Snapshot, Unrun, Waits, nanoseconds,
};

/// The least time between two entries in the histogram of client buffers: 10 a second at most, with some tolerance for
/// readings that come early.
const CLIENT_BUFFERS_INTERVAL: Duration = Duration::from_millis(90);
/// An older sample of expired keys says nothing of now. They are sampled once a minute at least.
const SAMPLED_LATELY: Duration = Duration::from_secs(120);

/// Which calls are timed: as far as the plan of a server goes, and was not withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedCalls {
    pub evictions: bool,
    pub cycles: bool,
    /// Whether the keys are counted that expire cycles sample.
    pub cycle_keys: bool,
}

impl Default for TimedCalls {
    fn default() -> Self {
        Self { evictions: true, cycles: true, cycle_keys: true }
    }
}

/// What is known about one server since it was found: totals that only grow, and last values.
#[derive(Clone, Debug, Default)]
pub struct ServerState {
    /// What the programs have counted; the eviction call is always there.
    pub counted: Counted,
    /// The sum of all eviction goals, bytes. The kernel's is modulo 2^64, which can wrap: after `maxmemory` was lowered
    /// by 10 GB, within ten hours at 50,000 calls a second.
    mem_tofree_sum: u128,
    client_buffers: Option<HistogramTotals>,
    /// The highest total of client buffers since the server was found, bytes; `None` until they are first read.
    pub client_buffers_peak: Option<u64>,
    client_buffers_recorded: Option<Duration>,
    /// Wall time in evicting calls, including the one under way, nanoseconds.
    pub evicting_ns: u64,
    /// The same in expire cycles.
    pub expiring_ns: u64,
    inside_evictions: InsideCalls,
    inside_cycles: InsideCalls,
    expire_audit: ExpireAudit,
    unhit: Unhit,
    /// Where the server does not run what its probes were placed in.
    unrun: Option<Unrun>,
    pub longest: LongestCalls,
    pub main_thread: MainThreadTime,
    /// For how long calls were observed. While the server is sampled, the part of the main thread's working time that
    /// the probes took is subtracted: without them, it would have made as many calls in the rest.
    pub observed: Observed,
    last_observed: Observed,
    pub timed: TimedCalls,
    pub waits: Waits,
    /// Whose requests they are, and who does not take answers.
    pub peers: Peers,
    stalls: Stalls,
    refused: Refused,
    /// For how long it had run when it was found.
    pub age_when_found: Duration,
    use_clock: UseClock,
    /// What stalled clients between the last two snapshots; `None` if nothing did.
    pub stalled_by: Option<StallCause>,
    /// The values last read from the server's memory; `None` if the last reading failed.
    pub members: Option<MemberValues>,
    /// Memory that does not count against `maxmemory`, bytes, likewise.
    pub not_counted: Option<u64>,
    /// What its memory was last made of, likewise.
    pub memory: Option<MemoryParts>,
    /// The best key in its eviction pool, if known.
    pub candidate: Option<Candidate>,
    /// The last sample of its expired keys, and when it was taken in.
    expired: Option<(Duration, ExpiredSample)>,
}

impl ServerState {
    /// Returns the state of a server that has not been read yet, whose clients are stalled while a request waits for
    /// longer than `threshold`.
    pub fn stalled_after(threshold: Duration) -> Self {
        Self { stalls: Stalls::new(threshold), ..Self::default() }
    }

    pub(crate) fn member(&self, member: Member) -> Option<u64> {
        self.members.as_ref()?.get(member)
    }

    pub fn apply(&mut self, snapshot: &Snapshot) {
        let counted = &snapshot.counted;
        self.counted.clone_from(counted);
        if self.counted.calls.is_empty() {
            self.counted.calls.push(CallStats::default());
        }
        let tofree = counted.evictions.mem_tofree.sum.wrapping_sub(self.mem_tofree_sum as u64);
        self.mem_tofree_sum += u128::from(tofree);

        let at = snapshot.at;
        let evicting = until(at, self.eviction().inner.sum, snapshot.evicting_since());
        self.evicting_ns = self.evicting_ns.max(evicting);
        let cycles = self.cycles().map(|cycles| cycles.duration.sum);
        self.expiring_ns = self.expiring_ns.max(until(at, cycles.sum(), snapshot.expiring_since()));
        if let Some(calls) = counted.calls.first() {
            (self.longest).take_in(at, calls, snapshot.evicting_since());
        }
        if let Some(times) = snapshot.times {
            let waited = |function: u16| counted.calls.get(usize::from(function)).map_or(0, |calls| calls.cpu_wait_ns);
            let thread = (at, times.waiting_ns);
            let evicting_ns = self.evicting_ns.saturating_sub(waited(EVICTION));
            (self.inside_evictions).follow(thread, evicting_ns, snapshot.evicting_since());
            let expiring_ns = self.expiring_ns.saturating_sub(waited(EXPIRE));
            (self.inside_cycles).follow(thread, expiring_ns, snapshot.expiring_since());
            self.main_thread.advance(Spent {
                at,
                times,
                work: WorkAccount::of(&snapshot.members.unwrap_or_default()),
                evicting_ns,
                evicted_keys: snapshot.member(Member::StatEvictedkeys),
                observed: snapshot.observed.evicting,
                expiring_ns,
                throttled: snapshot.throttled,
            });
        }
        self.members = snapshot.members;
        self.not_counted = snapshot.not_counted;
        self.memory = snapshot.memory.or(self.memory).filter(|_| self.members.is_some());
        self.use_clock.take_in(snapshot, self.age_when_found);
        let certain = self.use_clock.certain;
        self.candidate = snapshot.candidate.filter(|key| key.idle().is_none_or(|idle| Some(idle) <= certain));
        let is_late = |(taken, _): &(Duration, _)| at.saturating_sub(*taken) < SAMPLED_LATELY;
        self.expired = snapshot.expired.map(|sample| (at, sample)).or(self.expired).filter(is_late);
        self.refused.take_in(snapshot);
        self.audit_cycles(snapshot);
        self.audit_evictions(snapshot);
        if let Some(reading) = self.reading(snapshot) {
            self.stalls.advance(reading);
        }
        self.stalled_by = None;
        if let Some(look) = &snapshot.look {
            let busy = snapshot.times.map(|times| Duration::from_nanos(times.cpu_ns + times.waiting_ns));
            let waits = self.waits.take_in(look, &ThreadSample { at, busy, rests: &snapshot.rests });
            self.stalled_by = self.stalls.take_in(&waits);
            self.peers.take_in(look.at, look.peers.as_ref(), &self.waits);
        }
        self.record_client_buffers(at);
        self.observe(snapshot);
    }

    fn audit_cycles(&mut self, snapshot: &Snapshot) {
        let now = ServerCounts {
            expired_keys: self.member(Member::StatExpiredkeys),
            cycle_us: self.member(Member::StatExpireCycleTimeUsed),
        };
        let seen = CycleCounts {
            cycles: self.cycles().map(|cycle| cycle.duration.count()).sum(),
            ns: self.cycles().map(|cycle| cycle.duration.sum).sum(),
            expired: self.cycle_keys().1,
        };
        // Cycles that were left out are not seen, which is no contradiction.
        let is_between_cycles = self.timed.cycles && snapshot.expiring_since().is_none();
        self.expire_audit.advance(now, is_between_cycles.then_some(seen));
    }

    fn audit_evictions(&mut self, snapshot: &Snapshot) {
        self.unrun = snapshot.unrun.or(self.unrun);
        if !self.timed.evictions {
            return;
        }
        self.unhit.advance(HitReading {
            at: snapshot.at,
            observed: snapshot.observed.evicting,
            hits: self.eviction().hits[Probe::Inner as usize],
            evicted_keys: self.member(Member::StatEvictedkeys),
            commands: self.member(Member::StatNumcommands),
            rested: snapshot.rests.last().copied(),
        });
    }

    /// Returns the reading that the cause of a stall is judged by; `None` if the main thread's times could not be read.
    fn reading(&self, snapshot: &Snapshot) -> Option<StallReading> {
        let thread = &self.main_thread;
        let evictions_ns = self.inside_evictions.ns + thread.estimated_ns;
        Some(StallReading {
            at: snapshot.at,
            times: snapshot.times?,
            eviction: self.timed.evictions.then(|| Inside { ns: evictions_ns, cpu_ns: thread.all_eviction_ns() }),
            expire: self.timed.cycles.then_some(Inside { ns: self.inside_cycles.ns, cpu_ns: thread.expire_ns }),
            is_resting: snapshot.is_resting,
        })
    }

    /// Adds the time for which calls were observed since the last snapshot.
    fn observe(&mut self, snapshot: &Snapshot) {
        // An idle thread has time for the probes, a busy one makes fewer calls.
        let taken = Duration::from_nanos((snapshot.spent_ns * self.main_thread.busy) as u64);
        let now = snapshot.observed;
        let last = std::mem::replace(&mut self.last_observed, now);
        self.observed.evicting += now.evicting.saturating_sub(last.evicting + taken);
        self.observed.noop += now.noop.saturating_sub(last.noop + taken);
    }

    /// Returns how long requests of its clients wait; `None` if no look was ever made.
    pub fn known_waits(&self) -> Option<&Waits> {
        Some(&self.waits).filter(|waits| waits.is_known())
    }

    /// Returns the time for which this cause stalled clients; `None` if it is not known how long they wait.
    pub fn stalled(&self, by: StallCause) -> Option<Duration> {
        self.waits.is_known().then(|| self.stalls.total(by))
    }

    /// Returns the time for which clients were stalled in all; `None` if it is not known how long they wait.
    pub fn stalled_in_all(&self) -> Option<Duration> {
        StallCause::ALL.iter().map(|cause| self.stalled(*cause)).sum()
    }

    /// Returns how many commands were refused because nothing could be evicted; `None` if that is not known.
    pub fn refused(&self) -> Option<u64> {
        self.refused.total
    }

    /// Returns the share of the keys with a time to live that have expired and are still held, by a sample of the last
    /// minutes; `None` if there was none, or such keys are few.
    pub fn expired_held(&self) -> Option<f64> {
        self.expired?.1.ratio()
    }

    fn record_client_buffers(&mut self, at: Duration) {
        let Some(total) = self.member(Member::StatClientsTypeMemory) else { return };
        self.client_buffers_peak = self.client_buffers_peak.max(Some(total));
        if self.client_buffers_recorded.is_none_or(|last| at.saturating_sub(last) >= CLIENT_BUFFERS_INTERVAL) {
            self.client_buffers.get_or_insert_with(|| HistogramTotals::new(bounds::CLIENT_BUFFERS)).record(total);
            self.client_buffers_recorded = Some(at);
        }
    }

    pub fn eviction(&self) -> &CallStats {
        &self.counted.calls[usize::from(EVICTION)]
    }

    fn cycles(&self) -> impl Iterator<Item = &CycleStats> {
        self.counted.expires.cycles.iter()
    }

    /// Returns how many keys expire cycles have sampled, and how many of those had expired.
    pub(crate) fn cycle_keys(&self) -> (u64, u64) {
        let cycles = || CycleType::OF_KEYS.map(|kind| &self.counted.expires.cycles[kind as usize]);
        (cycles().map(|cycle| cycle.sampled).iter().sum(), cycles().map(|cycle| cycle.expired).iter().sum())
    }

    /// Returns the eviction goal at each evicting call, bytes.
    pub fn mem_tofree(&self) -> HistogramView<'_> {
        HistogramView::of(bounds::MEM_TOFREE, &self.counted.evictions.mem_tofree).with_sum(self.mem_tofree_sum)
    }

    /// Returns all client buffers at each sample, bytes; `None` until they are first read.
    pub fn client_buffers(&self) -> Option<HistogramView<'_>> {
        self.client_buffers.as_ref().map(HistogramTotals::view)
    }

    /// Returns how many inner calls of any traced function were not seen to end.
    pub fn lost_exits(&self) -> u64 {
        self.counted.calls.iter().map(|calls| calls.lost_exits).sum()
    }
}

/// Returns the sum of the durations of calls, including the one under way until `at`, nanoseconds.
fn until(at: Duration, sum_ns: u64, since: Option<Duration>) -> u64 {
    sum_ns.saturating_add(nanoseconds(since.map_or(Duration::ZERO, |since| at.saturating_sub(since))))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_model::Member;

    use super::{CLIENT_BUFFERS_INTERVAL, ServerState};
    use crate::{MemberValues, Observed, Snapshot, ThreadTimes};

    fn clients(at: Duration, total: u64) -> Snapshot {
        let mut members = MemberValues::default();
        members.set(Member::StatClientsTypeMemory, &[total - 3, 1, 1, 1]);
        Snapshot { at, members: Some(members), ..Snapshot::default() }
    }

    #[test]
    fn what_was_not_read_is_not_known() {
        let mut state = ServerState::default();
        state.apply(&Snapshot::default());
        assert!(state.members.is_none());
        assert!(state.client_buffers().is_none());
        assert_eq!(state.client_buffers_peak, None);
        assert!(!state.main_thread.is_known());

        let members = MemberValues::from_iter([(Member::StatEvictedkeys, 7)]);
        let read = Snapshot { members: Some(members), ..Snapshot::default() };
        state.apply(&read);
        assert_eq!(state.members, Some(members));
        assert_eq!(state.client_buffers_peak, None);

        // A value that can no longer be read does not stay the last one.
        state.apply(&Snapshot::default());
        assert_eq!(state.members, None);
    }

    #[test]
    fn what_the_probes_take_of_a_servers_work_is_not_observed_time() {
        let observed = |seconds| Observed { evicting: Duration::from_secs(seconds), noop: Duration::ZERO };
        let after_two_seconds = |cpu_ns| {
            let mut state = ServerState::default();
            for second in 0..3 {
                let times = ThreadTimes { cpu_ns: second * cpu_ns, waiting_ns: 0 };
                state.apply(&Snapshot {
                    at: Duration::from_secs(second),
                    times: Some(times),
                    observed: observed(second),
                    spent_ns: 100e6,
                    ..Snapshot::default()
                });
            }
            state.observed.evicting.as_secs_f64()
        };
        assert_eq!(after_two_seconds(1_000_000_000), 1.8);
        assert_eq!(after_two_seconds(0), 2.0, "it had time to spare");
    }

    #[test]
    fn goals_add_up_to_more_than_the_kernel_counts() {
        let (mut state, mut snapshot) = (ServerState::default(), Snapshot::default());
        for _ in 0..5 {
            snapshot.counted.evictions.mem_tofree.record(3, 1 << 62);
            state.apply(&snapshot);
        }
        assert_eq!((state.mem_tofree().count(), state.mem_tofree().sum()), (5, 5 << 62));
    }

    #[test]
    fn client_buffers_are_sampled_ten_times_a_second() {
        let mut state = ServerState::default();
        let begin = Duration::from_secs(1);
        let mut samples_after = |at, total| {
            state.apply(&clients(at, total));
            state.client_buffers().map(|totals| totals.count())
        };
        assert_eq!(samples_after(begin, 1_000), Some(1));
        assert_eq!(samples_after(begin + CLIENT_BUFFERS_INTERVAL - Duration::from_nanos(1), 8_000), Some(1));
        assert_eq!(samples_after(begin + CLIENT_BUFFERS_INTERVAL, 4_000), Some(2));
        assert_eq!(state.client_buffers().map(|totals| totals.sum()), Some(5_000));
        // Not an entry of the histogram, but the highest value all the same.
        assert_eq!(state.client_buffers_peak, Some(8_000));
    }

    #[test]
    fn a_call_under_way_counts_as_time_in_evicting_calls() {
        let mut state = ServerState::default();
        let mut snapshot = Snapshot { at: Duration::from_nanos(10_000), ..Snapshot::default() };
        snapshot.counted.calls[0].inner.record(3, 2_000);
        snapshot.counted.calls[0].inner_since_ns = 7_000;
        state.apply(&snapshot);
        assert_eq!(state.evicting_ns, 5_000);
        // It ended.
        snapshot.at = Duration::from_nanos(20_000);
        snapshot.counted.calls[0].inner.record(3, 4_000);
        snapshot.counted.calls[0].inner_since_ns = 0;
        state.apply(&snapshot);
        assert_eq!(state.evicting_ns, 6_000);
    }
}
