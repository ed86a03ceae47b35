//! How far a server is from two of the three conditions of the cycle: memory at its limit, and a main thread without
//! CPU time to spare. The third, clients that wait, is in [`crate::Waits`].

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::{Moment, Phase, nanoseconds};

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
/// Nor do fewer evicting calls that were observed: a short burst may lie between the times that are.
const LEAST_CALLS: u64 = 100;
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
    /// Evicting calls that were observed.
    calls: u64,
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
            calls: seen.evicting_calls,
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
    pub mean: f64,
    /// The true growth is within this of the mean in 95 % of cases, judging by how the parts of that time differ.
    pub error: f64,
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
    pub share: f64,
    /// Where the CPU time that a byte takes was measured.
    pub measured: CostOrigin,
}

/// Where the cost of evicting was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CostOrigin {
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
    pub(super) fn observe(&mut self, now: &Moment, phase: Phase) {
        let keys = now.memory.and_then(|memory| memory.keys);
        let Some(now) = Point::of(now) else { return };
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
            let over = last.at.saturating_sub(self.calm.get(begin)?.at);
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
            Some(cost) => (cost, CostOrigin::Here),
            None => (lab_cost_of_a_byte(self.key_bytes?), CostOrigin::InTheLab),
        };
        Some(EvictionLoad { share: self.growth()?.mean.max(0.0) * cost, measured })
    }

    /// Returns the first and last points of the last minute in which the server did not evict.
    fn lately(&self) -> Option<(Point, Point)> {
        let to = self.newest?;
        let begin = to.at.saturating_sub(LATELY);
        let from = self.calm.iter().find(|point| point.at >= begin)?;
        (to.at > from.at).then_some((*from, to))
    }

    /// Returns the CPU time that evictions have taken for each byte that they freed, seconds; `None` if too few keys
    /// were evicted or calls observed, or if evictions began too long ago for what is known about the time before.
    fn cost_until(&self, now: &Point) -> Option<f64> {
        let (from, by_command) = (self.evicting?, self.by_command?);
        let is_over = now.at.saturating_sub(from.at) > LATELY;
        if is_over || now.evicted_keys < from.evicted_keys + LEAST_KEYS || now.calls < from.calls + LEAST_CALLS {
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

/// Bytes that a key takes, and the CPU time of evicting it, nanoseconds: what
/// `evictscope_main_thread_cpu_seconds_total` grew by with each evicted key, medians of 5 rounds on a virtual machine
/// with Debian's Redis 7.0.15, strings of 16 to 64,000 bytes in 256 MB, and `allkeys-lru`.
const LAB_COSTS: [(f64, f64); 6] = [
    (120.0, 2_286.0),
    (315.0, 2_075.0),
    (1_117.0, 1_968.0),
    (4_200.0, 1_929.0),
    (16_533.0, 2_059.0),
    (65_867.0, 2_896.0),
];

/// Returns the CPU time for each evicted byte, seconds, if a key takes `key_bytes` on average.
fn lab_cost_of_a_byte(key_bytes: f64) -> f64 {
    let [first, .., last] = LAB_COSTS;
    let above = LAB_COSTS.partition_point(|(bytes, _)| *bytes < key_bytes);
    let ns = match above {
        0 => first.1,
        above if above == LAB_COSTS.len() => last.1,
        above => {
            let [(from, low), (to, high)] = [LAB_COSTS[above - 1], LAB_COSTS[above]];
            low + (high - low) * (key_bytes - from) / (to - from)
        }
    };
    ns / 1e9 / key_bytes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{CostOrigin, EvictionLoad, LAB_COSTS, Margins, MemoryGrowth, lab_cost_of_a_byte};
    use crate::{ClientBuffers, MemoryParts, Moment, Phase};

    /// Returns client buffers of so many bytes.
    fn buffers(bytes: f64) -> Option<ClientBuffers> {
        Some(ClientBuffers { normal: bytes as u64, replica: 0, pubsub: 0, primary: 0 })
    }

    /// Returns a reading of a server without client buffers, whose main thread runs for a quarter of the time.
    fn seen(second: f64, used_memory: f64) -> Moment {
        Moment {
            at: Duration::from_secs_f64(second),
            used_memory: Some(used_memory as u64),
            client_buffers: buffers(0.0),
            commands: Some((second * 1e4) as u64),
            evicted_keys: Some(0),
            cpu_eviction: Some(Duration::ZERO),
            cpu_other: Some(Duration::from_nanos((second * 0.25e9) as u64)),
            ..Moment::default()
        }
    }

    /// Returns what is known after `seconds` that were calm, and in which this was seen.
    fn margins_after(seconds: u32, seen: impl Fn(f64) -> Moment) -> Margins {
        let mut margins = Margins::default();
        for second in 0..=seconds {
            margins.observe(&seen(f64::from(second)), Phase::NotSaturated);
        }
        margins
    }

    /// Returns what is known after `seconds` with this `used_memory`.
    fn after(seconds: u32, used_memory: impl Fn(f64) -> f64) -> Margins {
        margins_after(seconds, |second| seen(second, used_memory(second)))
    }

    #[test]
    fn a_straight_line_is_certain_and_a_wave_is_not() -> Result<(), &'static str> {
        assert_eq!(after(59, |second| 1e9 + 1e3 * second).growth(), None);
        let margins = after(60, |second| 1e9 + 1e3 * second);
        let straight = margins.growth().ok_or("not known")?;
        assert_eq!(straight, MemoryGrowth { mean: 1e3, error: 0.0, over: Duration::from_secs(60) });
        assert_eq!(straight.fills(60_000), [Some(60.0); 3]);
        assert_eq!(margins.busy(), Some(0.25));
        let wave = |second: f64| 1e9 + 1e3 * second + 4e6 * (second / 200.0).sin();
        let waving = after(7_200, wave).growth().ok_or("not known")?;
        assert!((waving.mean - 1e3).abs() < waving.error, "{waving:?}");
        let [earliest, likely, latest] = waving.fills(1_000_000);
        assert!(earliest < likely && latest.is_none_or(|latest| Some(latest) > likely));
        assert_eq!(after(100, |second| 1e9 - second).growth().map(|growth| growth.fills(1)), Some([None; 3]));
        Ok(())
    }

    proptest! {
        /// Memory rises by `grown` bytes a command until the limit, where each freed byte costs `cost`. Meanwhile calls
        /// are observed for part of the time, buffers grow, and the limit is lowered.
        #[test]
        fn evictions_cost_what_they_cost_last(
            grown in 1.0..1e4_f64,
            cost in 1e-10..1e-7_f64,
            observed in 0.01..1.0_f64,
            swollen in 0.0..1e8_f64,
            lowered in 0.0..1e9_f64,
        ) {
            let calm = |second| seen(second, 1e12 + grown * 1e4 * second);
            let mut margins = Margins::default();
            for second in 0..300 {
                margins.observe(&calm(f64::from(second)), Phase::NotSaturated);
            }
            prop_assert_eq!(margins.evictions_would_add(), None, "nothing was evicted yet");
            let limit = calm(300.0);
            for tenth in 0..100_u32 {
                let second = f64::from(tenth) / 10.0;
                let done = second / 10.0;
                let freed = grown * 1e4 * second + done * (swollen + lowered);
                let cpu_ns = cost * freed * 1e9;
                let now = calm(300.0 + second);
                let evicting = Moment {
                    used_memory: limit.used_memory.map(|bytes| bytes - (done * lowered) as u64),
                    client_buffers: buffers(done * swollen),
                    evicted_keys: Some(u64::from(tenth) * 1_000),
                    evicting_calls: u64::from(tenth) * 1_000,
                    cpu_eviction: Some(Duration::from_nanos((cpu_ns * observed) as u64)),
                    cpu_other: now.cpu_other.map(|time| time.mul_f64(observed)),
                    cpu_unobserved: Duration::from_nanos(((cpu_ns + 0.25e9 * second) * (1.0 - observed)) as u64),
                    ..now
                };
                margins.observe(&evicting, Phase::Saturated);
            }
            prop_assert_eq!(margins.growth(), None);
            for second in 400..500 {
                margins.observe(&calm(f64::from(second)), Phase::NotSaturated);
            }
            // A burst of which no call was observed does not tell that evictions cost nothing.
            for (second, evicted) in [(500.0, 101_000), (501.0, 102_000)] {
                let unseen = Moment { evicted_keys: Some(evicted), evicting_calls: 99_000, ..calm(second) };
                margins.observe(&Moment { used_memory: limit.used_memory, ..unseen }, Phase::Saturated);
            }
            for second in 502..600 {
                margins.observe(&calm(f64::from(second)), Phase::NotSaturated);
            }
            let added = margins.evictions_would_add().map(|load| (load.measured, load.share));
            let (measured, added) = added.unwrap_or((CostOrigin::InTheLab, 0.0));
            prop_assert_eq!(measured, CostOrigin::Here);
            let expected = cost * grown * 1e4;
            prop_assert!((added / expected - 1.0).abs() < 0.02, "{added} for {expected}");
        }
    }

    #[test]
    fn where_nothing_was_evicted_the_lab_tells_by_the_size_of_a_key() {
        let with_keys = |keys, used_memory: f64| {
            let margins = margins_after(60, |second| {
                let memory = Some(MemoryParts::of_keys(keys)).filter(|_| second == 0.0);
                Moment { memory, ..seen(second, used_memory + 1e6 * second) }
            });
            margins.evictions_would_add()
        };
        let load = with_keys(1_000_000, 1e9);
        let share = 1e6 * lab_cost_of_a_byte(1e3);
        assert_eq!(load, Some(EvictionLoad { share, measured: CostOrigin::InTheLab }));
        assert_eq!(with_keys(0, 1e9), None, "no key");
        assert_eq!(with_keys(10, 1e6), None, "not keys'");
    }

    /// Fills a server to `filled` bytes in `filling` seconds, from when it writes on at a tenth of a percent of that a
    /// second.
    fn filled(filled: f64, filling: f64) -> impl Fn(f64) -> f64 {
        move |second| filled * (second / filling).min(1.0) + 1e-3 * filled * (second - filling).max(0.0)
    }

    #[test]
    fn a_fill_foretells_nothing() {
        for filling in [20.0, 50.0, 110.0, 290.0] {
            for seconds in 0..=1_200 {
                let growth = after(seconds, filled(1e9, filling)).growth();
                let Some(growth) = growth else {
                    let since = f64::from(seconds) - filling;
                    assert!(since < 200.0, "{filling} s of fill, {since} s before: nothing");
                    continue;
                };
                assert!((growth.mean / 1e6 - 1.0).abs() < 0.35, "{filling} s, {seconds} s: {growth:?}");
            }
        }
        // What is merely small when it begins, and grows on and on, is none.
        assert!(after(700, |second| 1e6 * second).growth().is_some());
        assert_eq!(after(590, |second| 1e6 * second).growth(), None);
    }

    #[test]
    fn what_does_not_count_against_the_limit_does_not_fill_it() {
        let not_counted = |second| Some((second * 1e6) as u64);
        let margins = margins_after(120, |second| Moment {
            not_counted: not_counted(second),
            ..seen(second, 1e9 + second * 1e6)
        });
        assert_eq!(margins.growth().map(|growth| growth.mean), Some(0.0));
    }

    #[test]
    fn a_thread_that_spins_is_not_busy() {
        let busy = |hides_work| {
            let spinning = |second| Moment {
                cpu_other: Some(Duration::from_secs_f64(second * 0.99)),
                no_work: Duration::from_secs_f64(second * 0.81),
                hides_work,
                ..seen(second, 1e9)
            };
            margins_after(60, spinning).busy()
        };
        assert!(busy(false).is_some_and(|busy| (busy - 0.18).abs() < 1e-6));
        assert_eq!(busy(true), None);
    }

    #[test]
    fn between_two_sizes_it_is_between_their_costs() {
        for [(from, low), (to, high)] in LAB_COSTS.array_windows() {
            assert!(from < to);
            let key = |bytes: f64| lab_cost_of_a_byte(bytes) * bytes * 1e9;
            assert!((key(*from) - low).abs() < 1e-6 && (key(*to) - high).abs() < 1e-6);
            let middle = key((from + to) / 2.0);
            assert!((middle - (low + high) / 2.0).abs() < 1e-6, "{middle}");
        }
        let ends = [lab_cost_of_a_byte(1.0), lab_cost_of_a_byte(1e9)].map(|cost| cost * 1e9);
        assert!((ends[0] - LAB_COSTS[0].1).abs() < 1e-6);
        assert!(ends[1] * 1e9 <= LAB_COSTS[LAB_COSTS.len() - 1].1 + 1e-6);
    }
}
