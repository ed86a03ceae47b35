//! The longest evicting call of the last minutes, to the nanosecond.

use std::time::Duration;

use evictscope_abi::{CallStats, Longest};

use crate::recent_maximum::RecentMaximum;

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
    use std::time::Duration;

    use evictscope_abi::{CallStats, Longest};
    use proptest::prelude::*;

    use super::LongestCalls;
    use crate::recent_maximum::SPAN;

    const WINDOW: Duration = Duration::from_nanos(Longest::WINDOW_NS);

    /// Counts a call as the programs do.
    fn end(calls: &mut CallStats, ended: Duration, duration_ns: u64) {
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
        end(&mut calls, begun + Duration::from_millis(490), 490_000_000);
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
                end(&mut calls, now, *duration);
                ended.push((now, *duration));
                if index % read_every != 0 {
                    continue;
                }
                longest.take_in(now, &calls, None);
                let seen = longest.longest().as_nanos() as u64;
                let within = |span: Duration| {
                    let counts = ended.iter().filter(move |(at, _)| *at + span > now);
                    counts.map(|(_, duration)| *duration).max()
                };
                prop_assert!(Some(seen) >= within(SPAN) && Some(seen) <= within(SPAN + WINDOW));
            }
        }
    }
}
