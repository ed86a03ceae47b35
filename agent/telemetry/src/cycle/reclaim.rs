//! How memory falls after the last evicting call of a burst.
//!
//! A server that works off a backlog holds the replies of a whole round of its event loop, so its memory swells and
//! shrinks several times a second. What falls is the highest memory of each second. The reclaim is over when that has
//! completed four fifths of its whole fall, and stays there. How far it falls is known only when it no longer falls.

use std::collections::VecDeque;
use std::time::Duration;

/// Memory is falling if it reaches a new low by at least this much within [`PATIENCE`], in bytes. A smaller fall may be
/// a few clients' buffers (16 KiB for one reply), which come and go at any time.
const LEAST_STEP: f64 = (64 << 10) as f64;
/// It must fall by this share of its whole fall, too, so that the end of a long fall, which gets slower and slower, is
/// seen.
const LEAST_SHARE: f64 = 0.01;
/// How long memory may go without a new low before it no longer counts as falling: longer than a slow command and some
/// rounds of a server that works off a backlog, much shorter than GitLab's reclaims of 30 to 60 s. A low is known only
/// when its [`ROUNDS`] are over, so that much later.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The span whose highest memory counts: some rounds of the event loop.
const ROUNDS: Duration = Duration::from_secs(1);
/// The share of the whole fall that is left when the reclaim is over. Memory approaches its lowest slowly, and when it
/// gets there is a matter of chance.
const LEFT: f64 = 0.2;

/// Memory at one moment, bytes.
type At = (Duration, f64);

/// How memory falls after the last evicting call of a burst.
#[derive(Clone, Debug)]
pub(super) struct Reclaim {
    /// The end of the last evicting call.
    end: Duration,
    /// Memory then.
    memory: f64,
    /// The highest memory in the burst.
    peak: f64,
    /// The last second, without values that a later one has reached: memory falls from each to the next.
    last: VecDeque<At>,
    lows: Vec<Low>,
    /// The lowest memory at any moment.
    lowest: f64,
}

/// A span whose highest memory was a new low.
#[derive(Clone, Copy, Debug)]
struct Low {
    begin: Duration,
    highest: f64,
    /// The lowest memory at any moment until its end.
    lowest: f64,
}

impl Reclaim {
    /// Begins at the end of the last evicting call so far.
    pub fn new(end: Duration, memory: f64, peak: f64) -> Self {
        Self {
            end,
            memory,
            peak: peak.max(memory),
            last: VecDeque::from([(end, memory)]),
            lows: Vec::new(),
            lowest: memory,
        }
    }

    pub fn saw(&mut self, at: Duration, memory: f64) {
        self.lowest = self.lowest.min(memory);
        while self.last.back().is_some_and(|last| last.1 <= memory) {
            self.last.pop_back();
        }
        self.last.push_back((at, memory));
        let begin = at.saturating_sub(ROUNDS);
        while self.last.front().is_some_and(|first| first.0 < begin) {
            self.last.pop_front();
        }
        let (Some(highest), true) = (self.highest(), begin >= self.end) else { return };
        let low = self.low();
        let step = LEAST_STEP.max(LEAST_SHARE * (self.peak - low));
        if self.lows.is_empty() || highest + step <= low {
            self.lows.push(Low { begin, highest, lowest: self.lowest });
        }
    }

    /// Returns the highest memory of the last second.
    fn highest(&self) -> Option<f64> {
        self.last.front().map(|first| first.1)
    }

    /// Returns the lowest so far of the highest values of each second.
    fn low(&self) -> f64 {
        self.lows.last().map_or(self.peak, |low| low.highest)
    }

    /// Returns the lowest memory at any moment of the whole fall.
    pub fn lowest(&self) -> f64 {
        self.lows.last().map_or(self.lowest, |low| low.lowest)
    }

    /// Returns whether memory has been lower than at the last evicting call, even for a moment.
    pub fn has_fallen(&self) -> bool {
        self.lowest + LEAST_STEP <= self.memory
    }

    /// Returns whether memory may fall further.
    pub fn goes_on(&self, at: Duration) -> bool {
        at.saturating_sub(self.lows.last().map_or(self.end, |low| low.begin)) < PATIENCE + ROUNDS
    }

    /// Returns when it was over, if memory falls no further: it is not over before.
    pub fn over(&self) -> Duration {
        let low = self.low();
        let near = low + LEFT * (self.peak - low);
        let settled = self.lows.iter().find(|low| low.highest <= near);
        settled.map_or(self.end, |settled| settled.begin)
    }

    /// Returns when it was over, given that the next burst began at `at`: then, if memory fell until then.
    pub fn over_before(&self, at: Duration) -> Duration {
        let rises = self.highest().is_some_and(|highest| highest > self.low());
        if rises { self.over() } else { at }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PATIENCE, ROUNDS, Reclaim};

    const MIB: f64 = (1 << 20) as f64;
    const END: Duration = Duration::from_secs(100);

    /// Follows memory for some seconds after the end of a burst with a peak of 1,000 MiB.
    fn after(seconds: f64, memory: impl Fn(f64) -> f64) -> Reclaim {
        let mut reclaim = Reclaim::new(END, 1_000.0 * MIB, 1_000.0 * MIB);
        let mut time = 0.0;
        while time < seconds {
            time += 0.02;
            reclaim.saw(END + Duration::from_secs_f64(time), memory(time) * MIB);
        }
        reclaim
    }

    fn assert_over(reclaim: &Reclaim, seconds: f64) {
        let over = (reclaim.over() - END).as_secs_f64();
        assert!((over - seconds).abs() < 0.1, "{over} s, not {seconds} s");
    }

    /// Falls by 10 MiB a second for 10 s, and then stays level.
    fn straight(time: f64) -> f64 {
        1_000.0 - 10.0 * time.min(10.0)
    }

    #[test]
    fn it_is_over_when_a_fifth_of_the_fall_is_left() {
        let reclaim = after(15.0, straight);
        assert_over(&reclaim, 8.0);
        assert!(reclaim.has_fallen() && !reclaim.goes_on(END + Duration::from_secs(15)));
        assert!((reclaim.lowest() - 900.0 * MIB).abs() < MIB);
    }

    #[test]
    fn while_memory_falls_what_is_certain_grows() {
        let mut before = END;
        for seconds in 1..16 {
            let seconds = f64::from(seconds);
            let reclaim = after(seconds, straight);
            assert!(reclaim.over() >= before, "it went back");
            before = reclaim.over();
            let goes_on = reclaim.goes_on(END + Duration::from_secs_f64(seconds));
            assert_eq!(goes_on, seconds < 10.0 + (PATIENCE + ROUNDS).as_secs_f64());
        }
    }

    /// Memory swells by 80 MiB in each round of 0.4 s, and the rounds shrink.
    #[test]
    fn moments_in_which_memory_is_low_do_not_count() {
        let rounds = |time: f64| {
            let swollen = 8.0 * (10.0 - time).max(0.0) * (time / 0.4).fract();
            920.0 + swollen
        };
        let reclaim = after(14.0, rounds);
        // The highest of a second is 1,000 MiB less 8 a second, and comes up to a round later.
        assert_over(&reclaim, 7.6);
    }

    #[test]
    fn a_long_tail_does_not_keep_it_open() {
        let decays = |time: f64| 900.0 + 100.0 * (-time / 4.0).exp();
        let reclaim = after(24.0, decays);
        // A fifth is left after ln 5 times 4 s.
        assert_over(&reclaim, 6.4);
        assert!(!reclaim.goes_on(END + Duration::from_secs(24)));
        assert!(reclaim.lows.len() < 200);
    }

    #[test]
    fn the_next_burst_ends_it_where_memory_still_falls() {
        let next = END + Duration::from_secs(5);
        assert_eq!(after(5.0, straight).over_before(next), next);
        let filled = |time: f64| straight(time).max(980.0 + (time - 3.0));
        let over = after(5.0, filled).over_before(next) - END;
        assert!(over < Duration::from_secs(3), "{over:?}");
    }

    /// Falls by 10 MiB a second for 10 s, with a pause in the middle.
    #[test]
    fn a_low_that_is_reached_in_time_counts_though_it_is_known_a_second_later() {
        let pause = PATIENCE.as_secs_f64() - 0.2;
        let pauses = |time: f64| straight(if time < 4.0 { time } else { (time - pause).max(4.0) });
        for twentieth in 1..20 * 10 {
            let seconds = f64::from(twentieth) / 20.0;
            assert!(after(seconds, pauses).goes_on(END + Duration::from_secs_f64(seconds)), "over after {seconds} s");
        }
    }

    #[test]
    fn where_memory_does_not_fall_there_is_none() {
        let reclaim = after(5.0, |time| 1_000.0 + time);
        assert!(!reclaim.has_fallen());
        assert_over(&reclaim, 0.0);
    }
}
