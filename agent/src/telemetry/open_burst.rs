//! Measures a burst from its first evicting call to the end of its reclaim.

use std::collections::VecDeque;
use std::time::Duration;

use super::counters::Counters;
use super::{Burst, Observation};

/// Memory falls when it reaches a new low by at least this much within [`RECLAIM_PATIENCE`]. A smaller
/// fall may be a few clients' buffers (16 KiB for one reply), which come and go at any time. The
/// article's reclaim frees several MB a second. To be confirmed by the lab.
const RECLAIM_STEP: f64 = (64 << 10) as f64;
/// How long memory may fail to reach a new low before the reclaim is over: longer than a slow
/// command, much shorter than the article's reclaims of 30 to 60 s. To be confirmed by the lab.
pub(super) const RECLAIM_PATIENCE: Duration = Duration::from_secs(2);

/// The span over which the slowest throughput is measured.
const SECOND: Duration = Duration::from_secs(1);

/// How memory falls after the last evicting call.
#[derive(Clone, Copy, Debug)]
struct Falling {
    since: Duration,
    /// The last low that counts as one, and when it was reached.
    low: Option<f64>,
    low_at: Duration,
    /// The lowest of all, by however little, and also between two observations.
    lowest: Option<f64>,
}

impl Falling {
    fn from(end: &Counters) -> Self {
        Self {
            since: end.at,
            low: end.used_memory,
            low_at: end.at,
            lowest: end.used_memory,
        }
    }

    fn saw(&mut self, now: &Counters) {
        let (Some(used), Some(low), Some(lowest)) = (now.used_memory, self.low, self.lowest) else {
            return;
        };
        self.lowest = Some(lowest.min(used).min(now.lowest_memory.unwrap_or(used)));
        if used + RECLAIM_STEP <= low {
            self.low = Some(used);
            self.low_at = now.at;
        }
    }
}

/// A burst that is not over, or whose reclaim is not.
#[derive(Clone, Debug)]
pub(super) struct OpenBurst {
    pub began: Duration,
    /// The same moment as time since 1970.
    pub began_unix: Duration,
    usual_rate: Option<f64>,
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
    /// The observations of the last second of the burst, the oldest a second ago or more.
    last_second: VecDeque<Counters>,
    slowest_rate: Option<f64>,
    falling: Falling,
}

impl OpenBurst {
    /// Opens a burst that began at `began`, between two observations.
    pub fn new(
        began: Duration,
        usual_rate: Option<f64>,
        before: &Counters,
        now: &Counters,
        seen: &Observation,
    ) -> Self {
        let start = before.interpolate(now, began);
        let since = seen.at.saturating_sub(began);
        Self {
            began,
            began_unix: seen.unix_time.saturating_sub(since),
            usual_rate,
            before: *before,
            start,
            end: start,
            last: *before,
            first_inside: *now,
            last_inside: *now,
            memory_peak: start.used_memory,
            buffers_peak: start.client_buffers,
            last_second: VecDeque::from([start]),
            slowest_rate: None,
            falling: Falling::from(&start),
        }
    }

    /// Returns when its last evicting call ended, as far as is known.
    pub fn ended(&self) -> Duration {
        self.end.at
    }

    /// Returns when memory was last seen to fall after the last evicting call; the end of that call if
    /// it did not fall.
    pub fn fell_until(&self) -> Duration {
        self.falling.low_at
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
            if self.last.at > self.began {
                self.note_rate(self.last);
            }
            self.memory_peak = higher(self.memory_peak, self.end.used_memory);
            self.falling = Falling::from(&self.end);
        }
        self.falling.saw(now);
        self.buffers_peak = higher(self.buffers_peak, now.client_buffers);
        self.last = *now;
    }

    /// Takes in the throughput of the second that ended at an observation inside the burst.
    fn note_rate(&mut self, now: Counters) {
        while (self.last_second.get(1)).is_some_and(|next| next.at + SECOND <= now.at) {
            self.last_second.pop_front();
        }
        if let Some(from) = self.last_second.front()
            && from.at + SECOND <= now.at
            && let Some(rate) = rate(from, &now, |counters| counters.commands)
        {
            self.slowest_rate = Some(self.slowest_rate.map_or(rate, |slowest| slowest.min(rate)));
        }
        self.last_second.push_back(now);
    }

    /// Ends the reclaim at `at`, because the next burst began.
    pub fn cut_reclaim(&mut self, at: Duration) {
        self.falling.low_at = self.falling.since.max(at);
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

    /// Returns the burst, now that it and its reclaim are over.
    pub fn finish(self) -> Burst {
        let growth = |from: Option<f64>, to: Option<f64>| Some((to? - from?).max(0.0));
        let (from, to) = self.measured();
        let during = rate(&from, &to, |counters| counters.commands);
        let share = |counter| Some(rate(&from, &to, counter)? / 1e9);
        let eviction = share(|counters| counters.cpu_eviction_ns);
        let other = share(|counters| counters.cpu_other_ns);
        let cpu = eviction
            .zip(other)
            .map(|(eviction, other)| eviction + other);
        // Nothing is evicted between the observation before and the first call, nor after the last.
        let evicted = growth(self.before.evicted_keys, self.last.evicted_keys);
        let bytes = |value: Option<f64>| value.map(whole);
        Burst {
            started: self.began_unix,
            duration: self.end.at.saturating_sub(self.began),
            reclaim: self.falling.low_at.saturating_sub(self.falling.since),
            evicting_calls: whole(self.last.evicting_calls - self.before.evicting_calls),
            evicted_keys: evicted.map(whole),
            commands_per_second_before: self.usual_rate,
            commands_per_second_during: during,
            commands_per_second_slowest: self.slowest_rate.or(during),
            client_buffers_before: bytes(self.start.client_buffers),
            client_buffers_peak: bytes(self.buffers_peak),
            memory_start: bytes(self.start.used_memory),
            memory_peak: bytes(self.memory_peak),
            memory_end: bytes(self.end.used_memory),
            memory_after: bytes(self.falling.lowest),
            cpu_share: cpu,
            waiting_share: share(|counters| counters.waiting_ns),
            eviction_cpu_share: eviction
                .zip(cpu.filter(|cpu| *cpu > 0.0))
                .map(|(eviction, cpu)| eviction / cpu),
        }
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
