//! A snapshot reduced to the values that phases and bursts need, with its time.

use std::time::Duration;

use evictscope_abi::ResultKind;
use evictscope_model::Member;

use crate::{MainThread, ServerState, Snapshot, StallCause, Waits};

/// When evicting calls were made. Monotonic; zero means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionTimes {
    /// When the evicting call under way passed the goal site.
    pub since: Duration,
    /// When the last evicting call ended.
    pub last: Duration,
    /// When the first evicting call after a quiet time passed the goal site.
    pub burst_began: Duration,
    /// When the last evicting call before that quiet time ended.
    pub burst_before_ended: Duration,
}

/// A server at one moment, as far as phases and bursts need it. A value that is not known is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// Monotonic time of the snapshot.
    pub at: Duration,
    /// When evicting calls were made.
    pub evictions: EvictionTimes,
    /// Evicting calls since the server was found.
    pub evicting_calls: u64,
    /// Evicting calls that failed: nothing could be evicted.
    pub failed_calls: u64,
    /// `mem_reported` of the last evicting call that ended, bytes.
    pub last_reported: Option<u64>,
    /// For how long evicting calls were observed until then.
    pub observed: Duration,
    /// CPU time of the main thread inside evicting calls, nanoseconds.
    pub cpu_eviction_ns: Option<u64>,
    /// CPU time of the main thread elsewhere, while evicting calls were observed, nanoseconds.
    pub cpu_other_ns: Option<u64>,
    /// CPU time of the main thread while evicting calls were not observed, nanoseconds.
    pub cpu_unobserved_ns: u64,
    /// CPU time of the main thread in which it is not known to have worked, nanoseconds.
    pub no_work_ns: u64,
    /// Whether it is not known now what of its CPU time is work.
    pub hides_work: bool,
    /// How long the main thread was ready to run and had no CPU, nanoseconds.
    pub waiting_ns: Option<u64>,
    /// The server's own counter of commands.
    pub commands: Option<u64>,
    /// The server's own counter of evicted keys.
    pub evicted_keys: Option<u64>,
    /// Memory tracked by the allocator, bytes.
    pub used_memory: Option<u64>,
    /// What of that does not count against `maxmemory`, bytes.
    pub not_counted: Option<u64>,
    /// All client buffers, bytes.
    pub client_buffers: Option<u64>,
    /// Keys, if they were counted.
    pub keys: Option<u64>,
    /// Connections in which requests waited at the last look.
    pub clients_waiting: Option<u64>,
    /// For how long clients were stalled.
    pub stalled: Option<Duration>,
    /// For how long evicting calls stalled them.
    pub stalled_by_evictions: Option<Duration>,
    /// Keys that expire cycles have sampled, and how many of those had expired.
    pub cycle_keys: Option<(u64, u64)>,
    /// The server's own estimate of the share of keys with a time to live that have expired and are still held.
    pub stale_ratio: Option<f64>,
    /// That share by the last sample.
    pub expired_held: Option<f64>,
}

impl Observation {
    /// Observes a server whose last snapshot has been applied to `state`.
    pub fn new(snapshot: &Snapshot, state: &ServerState) -> Self {
        let evictions = &snapshot.counted.evictions;
        let times = snapshot.counted.calls.first().map(|calls| EvictionTimes {
            since: snapshot.evicting_since().unwrap_or_default(),
            last: Duration::from_nanos(calls.last_inner_ns),
            burst_began: Duration::from_nanos(evictions.burst_began_ns),
            burst_before_ended: Duration::from_nanos(evictions.burst_before_ended_ns),
        });
        let thread = Some(state.main_thread).filter(MainThread::is_known);
        let members = state.members.unwrap_or_default();
        Self {
            at: snapshot.at,
            evictions: times.unwrap_or_default(),
            evicting_calls: state.eviction().inner.count(),
            failed_calls: evictions.evicting_results[ResultKind::Fail as usize],
            last_reported: evictions.last.reported.get(),
            observed: snapshot.observed.evicting,
            cpu_eviction_ns: thread.map(|thread| thread.eviction_ns),
            cpu_other_ns: thread.map(|thread| thread.other_ns),
            cpu_unobserved_ns: state.main_thread.unobserved_ns,
            no_work_ns: state.main_thread.no_work_ns(),
            hides_work: !state.main_thread.tells_work(),
            waiting_ns: snapshot.times.map(|times| times.waiting_ns),
            commands: members.get(Member::StatNumcommands),
            evicted_keys: members.get(Member::StatEvictedkeys),
            used_memory: members.get(Member::UsedMemory),
            not_counted: state.not_counted,
            client_buffers: members.get(Member::StatClientsTypeMemory),
            keys: snapshot.keys,
            clients_waiting: state.known_waits().map(Waits::waiting),
            stalled: state.stalled_in_all(),
            stalled_by_evictions: state.stalled(StallCause::Eviction),
            cycle_keys: Some(state.cycle_keys()),
            stale_ratio: members.stale_ratio(),
            expired_held: state.expired_held(),
        }
    }

    /// Returns the CPU time of the main thread while evicting calls were observed, nanoseconds.
    pub(super) fn cpu_observed_ns(&self) -> Option<u64> {
        Some(self.cpu_eviction_ns?.saturating_add(self.cpu_other_ns?))
    }

    /// Returns all CPU time of the main thread, nanoseconds.
    pub(super) fn cpu_ns(&self) -> Option<u64> {
        Some(self.cpu_observed_ns()?.saturating_add(self.cpu_unobserved_ns))
    }

    /// Returns the CPU time in which the main thread worked, nanoseconds.
    pub(super) fn work_ns(&self) -> Option<u64> {
        let cpu_ns = self.cpu_ns().filter(|_| !self.hides_work)?;
        Some(cpu_ns.saturating_sub(self.no_work_ns))
    }

    /// Returns an observation at `at`: counters on the straight line from here to `later`, everything else from
    /// `later`.
    pub(super) fn interpolate(&self, later: &Self, at: Duration) -> Self {
        let way = later.at.saturating_sub(self.at).as_secs_f64();
        let gone = at.saturating_sub(self.at).as_secs_f64();
        let share = match way > 0.0 {
            true => (gone / way).min(1.0),
            false => 1.0,
        };
        let line = |from: u64, to: u64| {
            let (from, to) = (from as f64, to as f64);
            (from + (to - from) * share).round() as u64
        };
        let known = |from: Option<u64>, to: Option<u64>| Some(line(from?, to?));
        let time = |from: Duration, to: Duration| from + to.saturating_sub(from).mul_f64(share);
        let known_time = |from: Option<Duration>, to: Option<Duration>| Some(time(from?, to?));
        Self {
            at,
            commands: known(self.commands, later.commands),
            evicted_keys: known(self.evicted_keys, later.evicted_keys),
            evicting_calls: line(self.evicting_calls, later.evicting_calls),
            failed_calls: line(self.failed_calls, later.failed_calls),
            cpu_eviction_ns: known(self.cpu_eviction_ns, later.cpu_eviction_ns),
            cpu_other_ns: known(self.cpu_other_ns, later.cpu_other_ns),
            cpu_unobserved_ns: line(self.cpu_unobserved_ns, later.cpu_unobserved_ns),
            no_work_ns: line(self.no_work_ns, later.no_work_ns),
            observed: time(self.observed, later.observed),
            waiting_ns: known(self.waiting_ns, later.waiting_ns),
            used_memory: known(self.used_memory, later.used_memory),
            client_buffers: known(self.client_buffers, later.client_buffers),
            clients_waiting: known(self.clients_waiting, later.clients_waiting),
            stalled: known_time(self.stalled, later.stalled),
            stalled_by_evictions: known_time(self.stalled_by_evictions, later.stalled_by_evictions),
            ..*later
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Observation;

    #[test]
    fn between_two_observations_the_counters_rise_evenly() {
        let before = Observation { at: Duration::from_millis(100), commands: Some(50), ..Observation::default() };
        let after = Observation { at: Duration::from_millis(200), commands: Some(150), used_memory: Some(9), ..before };
        let at = |milliseconds| before.interpolate(&after, Duration::from_millis(milliseconds));
        let commands = [100, 125, 300].map(|milliseconds| at(milliseconds).commands);
        assert_eq!(commands, [Some(50), Some(75), Some(150)]);
        assert_eq!(at(200).used_memory, None, "known at one end only");
        let nothing = Observation::default();
        assert_eq!(nothing.interpolate(&nothing, Duration::ZERO), nothing);
    }
}
