//! Measures a burst from its first evicting call to the end of its reclaim.

use std::time::Duration;

use super::reclaim::Reclaim;
use crate::{Burst, Moment, nanoseconds};

/// A burst that is not over, or whose reclaim is not.
#[derive(Clone, Debug)]
pub(super) struct OpenBurst {
    pub began: Duration,
    /// The expired share of the keys that expire cycles sampled in the last minute before it.
    expired_share: Option<f64>,
    /// Before its first evicting call.
    before: Moment,
    /// At its first evicting call.
    start: Moment,
    /// At the end of its last evicting call.
    end: Moment,
    last: Moment,
    /// At the first observation in it.
    first_inside: Moment,
    /// At the last observation that was followed by an evicting call.
    last_inside: Moment,
    memory_peak: Option<u64>,
    buffers_peak: Option<u64>,
    waiting_peak: Option<u64>,
    /// `None` if memory is not known.
    reclaim: Option<Reclaim>,
}

impl OpenBurst {
    /// Opens a burst that began at `start`, between two observations.
    pub fn new(expired_share: Option<f64>, start: Moment, before: &Moment, now: &Moment) -> Self {
        Self {
            began: start.at,
            expired_share,
            before: *before,
            start,
            end: start,
            last: *before,
            first_inside: *now,
            last_inside: *now,
            memory_peak: start.used_memory,
            buffers_peak: start.all_client_buffers(),
            waiting_peak: start.clients_waiting,
            reclaim: None,
        }
    }

    /// Returns when its last evicting call ended, as far as is known.
    pub fn ended(&self) -> Duration {
        self.end.at
    }

    fn calls(&self) -> u64 {
        self.last.evicting_calls.saturating_sub(self.before.evicting_calls)
    }

    fn has_failed(&self) -> bool {
        let failed = self.last.failed_calls.saturating_sub(self.before.failed_calls);
        failed > 0 && failed >= self.calls()
    }

    /// Returns whether memory has fallen after the last evicting call.
    pub fn has_reclaim(&self) -> bool {
        self.reclaim.as_ref().is_some_and(Reclaim::has_fallen)
    }

    /// Returns whether memory may fall further.
    pub fn goes_on_falling(&self, at: Duration) -> bool {
        (self.reclaim.as_ref()).is_some_and(|reclaim| reclaim.goes_on(at))
    }

    /// Returns until when the reclaim certainly went on.
    pub fn reclaim_over(&self) -> Duration {
        self.reclaim.as_ref().map(Reclaim::over).unwrap_or(self.end.at)
    }

    /// Takes in an observation; the last evicting call so far had ended at `evicting`.
    pub fn saw(&mut self, now: &Moment, evicting: Duration) {
        if evicting > self.end.at {
            self.end = self.last.interpolate(now, evicting);
            // Memory falls by many megabytes right after that call, so interpolation is wrong.
            self.end.used_memory = now.last_reported.or(self.end.used_memory);
            if self.last.at > self.first_inside.at {
                self.last_inside = self.last;
            }
            self.memory_peak = self.memory_peak.max(self.end.used_memory);
            let memory = self.end.used_memory.zip(self.memory_peak);
            self.reclaim = memory.map(|(end, peak)| Reclaim::new(self.end.at, end as f64, peak as f64));
        }
        if let (Some(reclaim), Some(memory)) = (&mut self.reclaim, now.used_memory) {
            reclaim.saw(now.at, memory as f64);
        }
        self.buffers_peak = self.buffers_peak.max(now.all_client_buffers());
        self.waiting_peak = self.waiting_peak.max(now.clients_waiting);
        self.last = *now;
    }

    /// Returns when the reclaim was over, given that the next burst began at `at`.
    pub fn reclaim_over_before(&self, at: Duration) -> Duration {
        self.reclaim.as_ref().map_or(self.end.at, |reclaim| reclaim.over_before(at))
    }

    /// Returns the counters at the two moments between which rates and shares are measured: the first and the last
    /// observation in the burst, or its interpolated ends if more than half of the burst is outside these observations.
    fn measured(&self) -> (Moment, Moment) {
        let inside = self.last_inside.at.saturating_sub(self.first_inside.at);
        if inside * 2 >= self.end.at.saturating_sub(self.began) {
            (self.first_inside, self.last_inside)
        } else {
            (self.start, self.end)
        }
    }

    /// Returns the burst, whose reclaim, if it had one, was over at `over`; `None` if all its calls failed: then writes
    /// were refused, and it was no burst.
    pub fn finish(self, over: Duration) -> Option<Burst> {
        if self.has_failed() {
            return None;
        }
        let (from, to) = self.measured();
        let share = |counter: &dyn Fn(&Moment) -> Option<Duration>| {
            Some(rate(&from, &to, |seen| counter(seen).map(nanoseconds))? / 1e9)
        };
        let eviction = share(&|seen| seen.cpu_eviction);
        let observed = share(&Moment::cpu_observed);
        let work = share(&Moment::work);
        // Evictions are work, and so take a larger share of that.
        let working = work.zip(share(&Moment::cpu_since_found)).filter(|(work, _)| *work > 0.0);
        let working = working.map_or(1.0, |(work, cpu)| cpu / work);
        let stalled = |of: fn(&Moment) -> Option<Duration>| Some(of(&self.last)?.saturating_sub(of(&self.before)?));
        // Nothing is evicted between the observation before and the first call, nor after the last.
        let evicted = self.last.evicted_keys.zip(self.before.evicted_keys);
        let reclaim = self.reclaim.as_ref();
        Some(Burst {
            started: self.began,
            duration: self.end.at.saturating_sub(self.began),
            reclaim: over.saturating_sub(self.end.at),
            evicting_calls: self.calls(),
            observed: self.end.probed.saturating_sub(self.start.probed),
            evicted_keys: evicted.map(|(to, from)| to.saturating_sub(from)),
            commands_per_second: rate(&from, &to, |seen| seen.commands),
            clients_waiting_before: self.start.clients_waiting,
            clients_waiting_peak: self.waiting_peak,
            stalled: stalled(|seen| seen.stalled),
            stalled_by_evictions: stalled(|seen| seen.stalled_by_evictions),
            expired_share_before: self.expired_share,
            stale_ratio_before: self.before.stale_ratio,
            expired_held_before: self.before.expired_held,
            client_buffers_before: self.start.all_client_buffers(),
            client_buffers_peak: self.buffers_peak,
            memory_start: self.start.used_memory,
            memory_peak: self.memory_peak,
            memory_end: self.end.used_memory,
            // Saturates, and is never NaN.
            memory_after: reclaim.map(|reclaim| reclaim.lowest().round() as u64),
            cpu_share: work,
            waiting_share: share(&|seen| seen.waiting),
            eviction_cpu_share: eviction
                .zip(observed.filter(|observed| *observed > 0.0))
                .map(|(eviction, observed)| eviction / observed * working),
        })
    }
}

/// Returns how much a counter rises a second between two moments. A burst of a single call can be shorter than a
/// microsecond; that gives no rate.
fn rate(from: &Moment, to: &Moment, counter: impl Fn(&Moment) -> Option<u64>) -> Option<f64> {
    let seconds = to.at.saturating_sub(from.at).as_secs_f64();
    let rise = counter(to)?.saturating_sub(counter(from)?);
    (seconds > 1e-6).then(|| rise as f64 / seconds)
}
