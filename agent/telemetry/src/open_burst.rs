//! Measures a burst from its first evicting call to the end of its reclaim.

use std::time::Duration;

use super::counters::Counters;
use super::reclaim::Reclaim;
use super::{Burst, Observation};

/// What is known of the time before a burst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    /// Of the keys that expire cycles sampled in the last minute, the share that had expired.
    pub expired_share: Option<f64>,
    /// The server's own estimate of the keys that have expired and are still held.
    pub stale_ratio: Option<f64>,
}

/// A burst that is not over, or whose reclaim is not.
#[derive(Clone, Debug)]
pub(super) struct OpenBurst {
    pub began: Duration,
    /// The same moment as time since 1970.
    pub began_unix: Duration,
    known: Before,
    /// Before its first evicting call.
    before: Counters,
    /// At its first evicting call.
    start: Counters,
    /// At the end of its last evicting call.
    end: Counters,
    last: Counters,
    /// At the first observation in it.
    first_inside: Counters,
    /// At the last observation that an evicting call came after.
    last_inside: Counters,
    memory_peak: Option<f64>,
    buffers_peak: Option<f64>,
    waiting_peak: Option<f64>,
    /// `None` where memory is not known.
    reclaim: Option<Reclaim>,
}

impl OpenBurst {
    /// Opens a burst that began at `start`, between two observations.
    pub fn new(
        known: Before,
        start: Counters,
        before: &Counters,
        now: &Counters,
        seen: &Observation,
    ) -> Self {
        let began = start.at;
        let since = seen.at.saturating_sub(began);
        Self {
            began,
            began_unix: seen.unix_time.saturating_sub(since),
            known,
            before: *before,
            start,
            end: start,
            last: *before,
            first_inside: *now,
            last_inside: *now,
            memory_peak: start.used_memory,
            buffers_peak: start.client_buffers,
            waiting_peak: start.clients_waiting,
            reclaim: None,
        }
    }

    /// Returns when its last evicting call ended, as far as is known.
    pub fn ended(&self) -> Duration {
        self.end.at
    }

    fn has_failed(&self) -> bool {
        let grown = |counter: fn(&Counters) -> f64| counter(&self.last) - counter(&self.before);
        let failed = grown(|counters| counters.failed_calls);
        failed > 0.0 && failed >= grown(|counters| counters.evicting_calls)
    }

    /// Tells whether memory has fallen after the last evicting call.
    pub fn has_reclaim(&self) -> bool {
        self.reclaim.as_ref().is_some_and(Reclaim::has_fallen)
    }

    /// Tells whether memory may fall further.
    pub fn goes_on_falling(&self, at: Duration) -> bool {
        (self.reclaim.as_ref()).is_some_and(|reclaim| reclaim.goes_on(at))
    }

    /// Returns until when the reclaim certainly went on.
    pub fn reclaim_over(&self) -> Duration {
        let over = self.reclaim.as_ref().map(Reclaim::over);
        over.unwrap_or(self.end.at)
    }

    /// Takes in an observation, when the last evicting call so far had ended at `evicting`.
    pub fn saw(&mut self, now: &Counters, evicting: Duration) {
        if evicting > self.end.at {
            self.end = self.last.interpolate(now, evicting);
            // Memory falls by many megabytes right after that call, so interpolation is wrong.
            self.end.used_memory = now.at_last_call.or(self.end.used_memory);
            if self.last.at > self.first_inside.at {
                self.last_inside = self.last;
            }
            self.memory_peak = higher(self.memory_peak, self.end.used_memory);
            let memory = self.end.used_memory.zip(self.memory_peak);
            self.reclaim = memory.map(|(end, peak)| Reclaim::new(self.end.at, end, peak));
        }
        if let (Some(reclaim), Some(memory)) = (&mut self.reclaim, now.used_memory) {
            reclaim.saw(now.at, memory);
        }
        self.buffers_peak = higher(self.buffers_peak, now.client_buffers);
        self.waiting_peak = higher(self.waiting_peak, now.clients_waiting);
        self.last = *now;
    }

    /// Returns when the reclaim was over, now that the next burst began at `at`.
    pub fn reclaim_over_before(&self, at: Duration) -> Duration {
        let over = self.reclaim.as_ref();
        over.map_or(self.end.at, |reclaim| reclaim.over_before(at))
    }

    /// Returns the counters at the two moments between which rates and shares are measured: the
    /// first and the last observation in the burst, or its interpolated ends if more than half of the
    /// burst lies outside of these observations.
    fn measured(&self) -> (Counters, Counters) {
        let inside = self.last_inside.at.saturating_sub(self.first_inside.at);
        match inside * 2 >= self.end.at.saturating_sub(self.began) {
            true => (self.first_inside, self.last_inside),
            false => (self.start, self.end),
        }
    }

    /// Returns the burst, now that its reclaim was over at `over`, if it had one; `None` where all its calls failed: then
    /// writes were refused, and it was no burst.
    pub fn finish(self, over: Duration) -> Option<Burst> {
        if self.has_failed() {
            return None;
        }
        let growth = |from: Option<f64>, to: Option<f64>| Some((to? - from?).max(0.0));
        let (from, to) = self.measured();
        let during = rate(&from, &to, |counters| counters.commands);
        let share = |counter| Some(rate(&from, &to, counter)? / 1e9);
        let eviction = share(|counters| counters.cpu_eviction_ns);
        let observed = share(|counters| Some(counters.cpu_eviction_ns? + counters.cpu_other_ns?));
        let cpu = share(|counters| {
            Some(counters.cpu_eviction_ns? + counters.cpu_other_ns? + counters.cpu_unobserved_ns)
        });
        // Nothing is evicted between the observation before and the first call, nor after the last.
        let evicted = growth(self.before.evicted_keys, self.last.evicted_keys);
        let count = |value: Option<f64>| value.map(whole);
        let seconds = |value: Option<f64>| Duration::try_from_secs_f64(value?).ok();
        Some(Burst {
            started: self.began_unix,
            duration: self.end.at.saturating_sub(self.began),
            reclaim: over.saturating_sub(self.end.at),
            evicting_calls: whole(self.last.evicting_calls - self.before.evicting_calls),
            observed: Duration::try_from_secs_f64(self.end.observed - self.start.observed)
                .unwrap_or_default(),
            evicted_keys: evicted.map(whole),
            commands_per_second: during,
            clients_waiting_before: count(self.start.clients_waiting),
            clients_waiting_peak: count(self.waiting_peak),
            stalled: seconds(growth(self.before.stalled, self.last.stalled)),
            stalled_by_evictions: seconds(growth(
                self.before.stalled_by_evictions,
                self.last.stalled_by_evictions,
            )),
            expired_share_before: self.known.expired_share,
            stale_ratio_before: self.known.stale_ratio,
            client_buffers_before: count(self.start.client_buffers),
            client_buffers_peak: count(self.buffers_peak),
            memory_start: count(self.start.used_memory),
            memory_peak: count(self.memory_peak),
            memory_end: count(self.end.used_memory),
            memory_after: count(self.reclaim.as_ref().map(Reclaim::lowest)),
            cpu_share: cpu,
            waiting_share: share(|counters| counters.waiting_ns),
            eviction_cpu_share: eviction
                .zip(observed.filter(|observed| *observed > 0.0))
                .map(|(eviction, observed)| eviction / observed),
        })
    }
}

/// Returns how much a counter rises a second between two moments. A burst of a single call can be shorter than a
/// microsecond; no rate is made of that.
fn rate(from: &Counters, to: &Counters, counter: fn(&Counters) -> Option<f64>) -> Option<f64> {
    let seconds = to.at.saturating_sub(from.at).as_secs_f64();
    let rise = (counter(to)? - counter(from)?).max(0.0);
    (seconds > 1e-6).then(|| rise / seconds)
}

fn higher(left: Option<f64>, right: Option<f64>) -> Option<f64> {
    left.into_iter().chain(right).reduce(f64::max)
}

/// Rounds an interpolated count or number of bytes.
fn whole(value: f64) -> u64 {
    // Saturates, and maps NaN to 0, but no value here is NaN.
    value.round() as u64
}
