//! How far a server is from two of the three conditions of the cycle: memory at its limit, and a main thread without
//! CPU time to spare. The third, clients that wait, is in [`crate::Waits`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::lab_costs;
use crate::units::nanoseconds;
use crate::{Moment, Phase};

/// How far back growth is measured.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Over less time, growth is not known.
const SHORTEST: Duration = Duration::from_secs(60);
/// The least time between two points. A sixth of [`SHORTEST`], so that each part has its own.
const GRAIN: Duration = Duration::from_secs(10);
/// How far back the main thread's load counts, and what a command adds to memory.
const LATELY: Duration = Duration::from_secs(60);
/// The time is divided into this many parts, and their differences give the error of the whole.
const PARTS: usize = 6;
/// A server is being filled as long as that made more than this share of its memory …
const FILLED: f64 = 0.1;
/// … and until growth, in one of the first parts of the time and before, was so many times that of any part after it.
const FILL: f64 = 3.0;
/// The quantile of Student's distribution for 95 % and [`PARTS`] values.
const STUDENT: f64 = 2.571;
/// Fewer evicted keys do not tell what evictions cost.
const LEAST_KEYS: u64 = 100;
/// Fewer commands do not tell what each adds to memory.
const LEAST_COMMANDS: f64 = 1_000.0;
/// In less memory, a good part is not keys', but what a server takes without any.
const LEAST_MEMORY: f64 = 1.6e7;

/// A server at one moment.
#[derive(Clone, Copy, Debug)]
struct Point {
    at: Duration,
    used_memory: f64,
    /// What of that counts against the limit.
    counted_memory: f64,
    client_buffers: f64,
    commands: f64,
    evicted_keys: u64,
    cpu_ns: f64,
    /// What of that was work.
    work_ns: Option<f64>,
    /// CPU time while evicting calls were observed. The share of evictions in it is taken for their share of `cpu_ns`.
    observed_ns: f64,
    eviction_ns: f64,
}

impl Point {
    /// Returns `None` if something is not known.
    fn of(seen: &Moment) -> Option<Self> {
        let used_memory = seen.used_memory? as f64;
        let ns = |time: Option<Duration>| time.map(|time| nanoseconds(time) as f64);
        Some(Self {
            at: seen.at,
            used_memory,
            counted_memory: used_memory - seen.not_counted.unwrap_or_default() as f64,
            client_buffers: seen.all_client_buffers()? as f64,
            commands: seen.commands? as f64,
            evicted_keys: seen.evicted_keys?,
            cpu_ns: ns(seen.cpu_since_found())?,
            work_ns: ns(seen.work()),
            observed_ns: ns(seen.cpu_observed())?,
            eviction_ns: ns(seen.cpu_eviction)?,
        })
    }

    /// Returns the memory without client buffers, bytes.
    fn kept(&self) -> f64 {
        self.used_memory - self.client_buffers
    }

    /// Returns what each of `keys` keys takes of that on average, if it is mostly theirs.
    fn key_bytes(&self, keys: u64) -> Option<f64> {
        (keys > 0 && self.kept() >= LEAST_MEMORY).then(|| self.kept() / keys as f64)
    }

    fn since(&self, before: &Self) -> f64 {
        self.at.saturating_sub(before.at).as_secs_f64()
    }
}

/// By how much memory grows, bytes a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryGrowth {
    /// The mean.
    pub mean: f64,
    /// The true growth is within this of the mean in 95 % of cases, judging by how the parts of that time differ.
    pub error: f64,
    /// The time over which it was measured.
    pub over: Duration,
}

impl MemoryGrowth {
    /// Returns in how many seconds `room` bytes are full: at the earliest, probably, and at the latest; `None` for
    /// never.
    pub fn fills(self, room: u64) -> [Option<f64>; 3] {
        let growths = [self.mean + self.error, self.mean, self.mean - self.error];
        growths.map(|growth| (growth > 0.0).then(|| room as f64 / growth))
    }
}

/// What evictions would take of the main thread's time at the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EvictionLoad {
    /// The share of its time.
    pub share: f64,
    /// Where the CPU time that a byte takes was measured.
    pub measured: Measured,
}

/// Where the cost of evicting was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// In this server, when it last evicted.
    Here,
    /// In the lab, with keys as large as this server's: it has not evicted yet.
    InTheLab,
}

/// What the next evictions can be predicted from.
#[derive(Clone, Debug, Default)]
pub struct Margins {
    /// The time since evictions ended, and the newest observation in it. Shared, because it is published ten times a
    /// second.
    calm: Arc<VecDeque<Point>>,
    newest: Option<Point>,
    /// What each command added to memory before the last evictions.
    by_command: Option<f64>,
    /// The point at which evictions began.
    evicting: Option<Point>,
    cost: Option<f64>,
    /// The memory that a key took on average when keys were last counted, bytes.
    key_bytes: Option<f64>,
}

impl Margins {
    /// Takes in an observation made in this phase.
    pub(super) fn observe(&mut self, now: &Moment, phase: Phase) {
        let keys = now.keys;
        let Some(now) = Point::of(now) else {
            return;
        };
        self.key_bytes = keys.map_or(self.key_bytes, |keys| now.key_bytes(keys));
        match phase {
            Phase::NotSaturated => {
                self.evicting = None;
                self.newest = Some(now);
                let last = self.calm.back();
                if last.is_none_or(|last| now.at.saturating_sub(last.at) >= GRAIN) {
                    let calm = Arc::make_mut(&mut self.calm);
                    calm.push_back(now);
                    let begin = now.at.saturating_sub(LONGEST);
                    while calm.pop_front_if(|first| first.at < begin).is_some() {}
                }
            }
            Phase::Saturated => {
                if self.evicting.is_none() {
                    self.evicting = Some(now);
                    // If a server evicts now and then, the calm before may be too short to measure.
                    self.by_command = self.lately().and_then(growth_by_command).or(self.by_command);
                    self.calm = Arc::default();
                }
                self.cost = self.cost_until(&now).or(self.cost);
            }
            Phase::Reclaim => {
                self.evicting = None;
                self.calm = Arc::default();
            }
        }
    }

    /// Returns the growth of the memory that counts in the last hour, since evictions ended, or since the server was
    /// filled; `None` while it evicts or is being filled, and in the first minute after that.
    pub fn growth(&self) -> Option<MemoryGrowth> {
        let last = self.calm.back()?;
        let before_it_was_full = |point: &Point| point.counted_memory < (1.0 - FILLED) * last.counted_memory;
        let mut begin = (self.calm.iter().rposition(before_it_was_full)).map_or(0, |point| point + 1);
        let slope = |from: usize, to: usize| {
            let (from, to) = (&self.calm[from], &self.calm[to]);
            (to.counted_memory - from.counted_memory) / to.since(from)
        };
        let end = self.calm.len() - 1;
        loop {
            let first = self.calm.get(begin)?;
            let over = last.at.saturating_sub(first.at);
            if over < SHORTEST {
                return None;
            }
            let border = |part: usize| begin + part * (end - begin) / PARTS;
            let slopes: [f64; PARTS] = std::array::from_fn(|part| slope(border(part), border(part + 1)));
            let fastest_after = |part: usize| slopes[part..].iter().copied().fold(0.0, f64::max);
            let is_fill = |part: &usize| slope(begin, border(*part)) > FILL * fastest_after(*part);
            if let Some(part) = (1..=PARTS / 2).rev().find(is_fill) {
                begin = border(part);
                continue;
            }
            let mean = slope(begin, end);
            let squares: f64 = slopes.iter().map(|slope| (slope - mean).powi(2)).sum();
            let parts = PARTS as f64;
            return Some(MemoryGrowth { mean, error: STUDENT * (squares / (parts * (parts - 1.0))).sqrt(), over });
        }
    }

    /// Returns the share of the last minute for which the main thread worked, while the server does not evict; `None`
    /// where its CPU time is not known to be work.
    pub fn busy(&self) -> Option<f64> {
        let (from, to) = self.lately()?;
        Some((to.work_ns? - from.work_ns?) / 1e9 / to.since(&from))
    }

    /// Returns what evictions would add at the limit: the growth of memory times the CPU time per freed byte, from when
    /// the server last evicted or from the lab.
    pub fn evictions_would_add(&self) -> Option<EvictionLoad> {
        let (cost, measured) = match self.cost {
            Some(cost) => (cost, Measured::Here),
            None => (lab_costs::of_a_byte(self.key_bytes?), Measured::InTheLab),
        };
        let share = self.growth()?.mean.max(0.0) * cost;
        Some(EvictionLoad { share, measured })
    }

    /// Returns whether keys must be counted, because the cost of evictions in this server is not known.
    pub fn needs_keys(&self) -> bool {
        self.cost.is_none()
    }

    /// Returns the first and last points of the last minute in which the server did not evict.
    fn lately(&self) -> Option<(Point, Point)> {
        let to = self.newest?;
        let begin = to.at.saturating_sub(LATELY);
        let from = self.calm.iter().find(|point| point.at >= begin)?;
        (to.at > from.at).then_some((*from, to))
    }

    /// Returns the CPU time that evictions have taken for each byte that they freed, seconds; `None` if too few keys
    /// were evicted, or if evictions began too long ago for what is known about the time before.
    fn cost_until(&self, now: &Point) -> Option<f64> {
        let (from, by_command) = (self.evicting?, self.by_command?);
        if now.at.saturating_sub(from.at) > LATELY || now.evicted_keys < from.evicted_keys + LEAST_KEYS {
            return None;
        }
        // What came in but does not show in memory was freed. What clients hold came in, too.
        let came = by_command * (now.commands - from.commands) + now.client_buffers - from.client_buffers;
        let freed = came - (now.used_memory - from.used_memory);
        let observed_ns = now.observed_ns - from.observed_ns;
        let share = (now.eviction_ns - from.eviction_ns) / observed_ns;
        let cost = share * (now.cpu_ns - from.cpu_ns) / 1e9 / freed;
        (freed > 0.0 && observed_ns > 0.0).then_some(cost)
    }
}

/// Returns by how much each command made memory without client buffers grow, bytes.
fn growth_by_command((from, to): (Point, Point)) -> Option<f64> {
    let commands = to.commands - from.commands;
    (commands >= LEAST_COMMANDS).then(|| (to.kept() - from.kept()) / commands)
}

#[cfg(test)]
mod tests;
