//! The slowest recent evicting calls, and the longest of all.

use std::collections::VecDeque;
use std::time::Duration;

use evictscope_abi::{CallStats, EvictionStats, Longest, ResultKind, SLOW_BANKS, SLOW_SLOTS, SlowEviction};
use serde::{Deserialize, Serialize};

use crate::microseconds;
use crate::totals::RecentMaximum;

/// For how long calls are kept.
const SPAN: Duration = Duration::from_secs(600);
/// The most calls to keep of a second, and to show. The longest of each window is always kept.
const SLOWEST: usize = 50;

/// One evicting call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowCall {
    /// When it ended, since 1970, microseconds.
    pub unix_us: u64,
    /// How long it took without waits for a CPU, nanoseconds.
    pub duration_ns: u64,
    /// Its goal (`mem_tofree`), bytes; `None` if that is not known.
    pub goal: Option<u64>,
    pub result: CallResult,
}

/// How an evicting call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// Memory is within the limit.
    Ok,
    /// It stopped at its time limit.
    Running,
    /// Nothing could be evicted.
    Fail,
    /// The place of the result was not found.
    Unknown,
}

impl CallResult {
    fn of(noted: u64) -> Self {
        match noted {
            noted if noted == ResultKind::Ok as u64 => Self::Ok,
            noted if noted == ResultKind::Running as u64 => Self::Running,
            noted if noted == ResultKind::Fail as u64 => Self::Fail,
            _ => Self::Unknown,
        }
    }
}

/// The slowest evicting calls of the last ten minutes.
#[derive(Clone, Debug, Default)]
pub struct SlowCalls {
    /// When the call last taken from each slot ended, nanoseconds.
    taken: [[u64; SLOW_SLOTS]; SLOW_BANKS],
    /// The calls of each second, by monotonic time, the oldest second first.
    seconds: VecDeque<(u64, Vec<SlowEviction>)>,
}

impl SlowCalls {
    /// Takes in what the programs have kept until `at`, monotonic. Returns the longest new one: when it ended,
    /// monotonic, and how long it took without the time in which it waited for a CPU.
    pub fn take_in(&mut self, at: Duration, counted: &EvictionStats) -> Option<(Duration, Duration)> {
        let slots = counted.slow.iter().flatten();
        let mut new = Vec::new();
        for (taken, call) in self.taken.iter_mut().flatten().zip(slots) {
            // Calls do not overlap, so no two end at the same time.
            if call.ended_ns > *taken {
                *taken = call.ended_ns;
                new.push(*call);
            }
        }
        let longest = new.iter().max_by_key(|call| call.duration_ns).copied();
        for call in new {
            self.add(call);
        }
        let oldest = at.saturating_sub(SPAN).as_secs();
        let is_over = |second: &mut (u64, Vec<SlowEviction>)| second.0 < oldest;
        while self.seconds.pop_front_if(is_over).is_some() {}
        longest.map(|call| [call.ended_ns, call.duration_ns].map(Duration::from_nanos).into())
    }

    fn add(&mut self, call: SlowEviction) {
        let second = Duration::from_nanos(call.ended_ns).as_secs();
        let place = match self.seconds.binary_search_by_key(&second, |kept| kept.0) {
            Ok(place) => place,
            Err(place) => {
                self.seconds.insert(place, (second, Vec::new()));
                place
            }
        };
        let calls = &mut self.seconds[place].1;
        calls.insert(calls.partition_point(|other| other.duration_ns >= call.duration_ns), call);
        if calls.len() > SLOWEST {
            let window = |call: &SlowEviction| SlowEviction::window(call.ended_ns);
            let is_spare = |index: &usize| {
                let longer = &calls[..*index];
                longer.iter().any(|other| window(other) == window(&calls[*index]))
            };
            if let Some(spare) = (0..calls.len()).rev().find(is_spare) {
                calls.remove(spare);
            }
        }
    }

    /// Returns the slowest calls that ended between two monotonic times, the slowest first; `since_1970` is added to a
    /// monotonic time to date it.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<SlowCall> {
        let ended = |call: &SlowEviction| Duration::from_nanos(call.ended_ns);
        let calls = self.seconds.iter().flat_map(|(_, calls)| calls);
        let mut within: Vec<_> = calls.filter(|call| (from..=to).contains(&ended(call))).collect();
        within.sort_by_key(|call| std::cmp::Reverse(call.duration_ns));
        within.truncate(SLOWEST);
        let slow = within.into_iter().map(|call| SlowCall {
            unix_us: microseconds(since_1970.saturating_add(ended(call))),
            duration_ns: call.duration_ns,
            goal: call.tofree.get(),
            result: CallResult::of(call.result),
        });
        slow.collect()
    }
}

/// The longest inner calls of the last five minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongestCalls {
    /// The longest call of each window of time, at the window's end.
    ended: RecentMaximum,
    /// How long the call under way has taken.
    under_way: Duration,
}

impl LongestCalls {
    /// Takes in what the kernel has kept until `at`, and when the call under way began.
    pub(super) fn take_in(&mut self, at: Duration, calls: &CallStats, since: Option<Duration>) {
        self.under_way = since.map_or(Duration::ZERO, |since| at.saturating_sub(since));
        let mut kept = calls.longest;
        kept.sort_unstable_by_key(|longest| longest.window);
        for longest in kept {
            let end = Duration::from_nanos((longest.window + 1) * Longest::WINDOW_NS);
            // An older window was complete when a later one was taken in.
            self.ended.take_in(end, longest.duration_ns);
        }
        self.ended.forget(at);
    }

    /// Returns how long the longest call took, or has taken so far if it is still under way; zero if there was none.
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.ended.get()).max(self.under_way)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use evictscope_abi::{CallStats, EvictionStats, Longest, Noted, ResultKind, SLOW_SLOTS, SlowEviction};
    use proptest::prelude::*;

    use super::{CallResult, LongestCalls, SLOWEST, SPAN, SlowCalls};
    use crate::totals::RECENTLY;

    const SINCE_1970: Duration = Duration::from_secs(1_700_000_000);

    /// Counts a call as the programs do.
    fn end(stats: &mut EvictionStats, call: SlowEviction) {
        let slot = stats.number as usize % SLOW_SLOTS;
        stats.number += 1;
        let kept = &mut stats.slow[SlowEviction::bank(call.ended_ns)][slot];
        if call.replaces(kept) {
            *kept = call;
        }
    }

    fn call(ended: Duration, duration_ns: u64) -> SlowEviction {
        SlowEviction {
            ended_ns: ended.as_nanos() as u64,
            duration_ns,
            tofree: Noted { value: 4_096, is_known: 1 },
            result: ResultKind::Running as u64,
        }
    }

    #[test]
    fn a_call_has_its_time_its_goal_and_its_result() {
        let (mut slow, mut stats) = (SlowCalls::default(), EvictionStats::default());
        let ended = Duration::from_millis(5_250);
        end(&mut stats, call(ended, 900));
        slow.take_in(ended, &stats);
        let calls = slow.between(Duration::ZERO, ended, SINCE_1970);
        let [call] = calls[..] else { panic!("{calls:?}") };
        assert_eq!(call.unix_us, 1_700_000_005_250_000);
        assert_eq!((call.duration_ns, call.goal), (900, Some(4_096)));
        assert_eq!(call.result, CallResult::Running);
        slow.take_in(ended + SPAN + Duration::from_secs(1), &stats);
        assert_eq!(slow.between(Duration::ZERO, Duration::MAX, SINCE_1970), []);
    }

    proptest! {
        #[test]
        fn the_longest_of_each_window_is_there_and_no_call_is_there_twice(
            calls in prop::collection::vec((1..1_000_000_u64, 1..20_000_000_u64), 1..2_000),
            read_every in 20..SlowEviction::WINDOW_NS / 1_000_000,
        ) {
            let (mut slow, mut stats) = (SlowCalls::default(), EvictionStats::default());
            let (mut now, mut read) = (Duration::from_secs(1_000), Duration::ZERO);
            let mut ended = Vec::new();
            for (duration, pause) in calls {
                let next = now + Duration::from_nanos(pause);
                // Read late, but before the window after the next begins.
                if next > read + Duration::from_millis(read_every) {
                    slow.take_in(now, &stats);
                    read = now;
                }
                now = next;
                ended.push(call(now, duration));
                end(&mut stats, call(now, duration));
            }
            slow.take_in(now, &stats);
            let mut longest: HashMap<u64, u64> = HashMap::new();
            for call in &ended {
                let window = longest.entry(SlowEviction::window(call.ended_ns)).or_default();
                *window = (*window).max(call.duration_ns);
            }
            let kept: Vec<_> = slow.seconds.iter().flat_map(|(_, calls)| calls).collect();
            for (window, longest) in longest {
                let is_there = kept.iter().any(|call| {
                    SlowEviction::window(call.ended_ns) == window && call.duration_ns == longest
                });
                prop_assert!(is_there, "window {window}");
            }
            let mut times: Vec<u64> = kept.iter().map(|call| call.ended_ns).collect();
            times.sort_unstable();
            prop_assert!(times.is_sorted_by(|call, next| call < next), "twice");
            prop_assert!(kept.iter().all(|call| ended.contains(call)));
            let shown = slow.between(Duration::ZERO, Duration::MAX, SINCE_1970);
            prop_assert!(shown.len() <= SLOWEST);
            prop_assert!(shown.is_sorted_by(|call, next| call.duration_ns >= next.duration_ns));
            let longest = ended.iter().map(|call| call.duration_ns).max();
            prop_assert_eq!(shown.first().map(|call| call.duration_ns), longest);
        }
    }

    const WINDOW: Duration = Duration::from_nanos(Longest::WINDOW_NS);

    /// Counts a call as the programs do.
    fn note(calls: &mut CallStats, ended: Duration, duration_ns: u64) {
        let window = Longest::window(ended.as_nanos() as u64);
        let longest = &mut calls.longest[Longest::place(window)];
        if longest.window != window || longest.duration_ns < duration_ns {
            *longest = Longest { window, duration_ns };
        }
    }

    #[test]
    fn a_call_under_way_counts_as_it_grows() {
        let (mut longest, mut calls) = (LongestCalls::default(), CallStats::default());
        let begun = 1_000 * WINDOW;
        for milliseconds in [100, 487] {
            let grown = Duration::from_millis(milliseconds);
            longest.take_in(begun + grown, &calls, Some(begun));
            assert_eq!(longest.longest(), grown);
        }
        note(&mut calls, begun + Duration::from_millis(490), 490_000_000);
        longest.take_in(begun + WINDOW, &calls, None);
        assert_eq!(longest.longest(), Duration::from_millis(490));
    }

    proptest! {
        #[test]
        fn it_is_the_longest_of_all(
            durations in prop::collection::vec((1..1_000_000_u64, 0..3_000_u64), 1..200),
            read_every in 1..3_usize,
        ) {
            let (mut longest, mut calls) = (LongestCalls::default(), CallStats::default());
            let mut now = 1_000 * WINDOW;
            let mut ended = Vec::new();
            for (index, (duration, pause)) in durations.iter().enumerate() {
                now += Duration::from_millis(*pause);
                note(&mut calls, now, *duration);
                ended.push((now, *duration));
                if index % read_every != 0 {
                    continue;
                }
                longest.take_in(now, &calls, None);
                let seen = longest.longest().as_nanos() as u64;
                let within = |span: Duration| {
                    ended.iter().filter(move |(at, _)| *at + span > now).map(|(_, duration)| *duration).max()
                };
                prop_assert!(Some(seen) >= within(RECENTLY) && Some(seen) <= within(RECENTLY + WINDOW));
            }
        }
    }
}
