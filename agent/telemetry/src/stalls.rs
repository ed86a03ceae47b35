//! The time in which evictions or expire cycles stall a server, added up as it passes.
//!
//! Each tenth of a second is judged by itself: it was a stall if evicting calls, or expire cycles, took a good part of the
//! main thread's time while that had none to spare. It counts for the one of the two that took more, so that the
//! sum over both is the time stalled. That needs no rate of commands to compare with, and no end of a burst.
//!
//! A tenth begins and ends at a reading, so that nothing in it is guessed; it is up to two tenths long where the server
//! is read ten times a second. A call that takes longer than a tenth counts from its own beginning, while it is still
//! under way.

use std::time::Duration;

use super::eviction_pace::EvictionPace;
use super::reading::Reading;

/// The span that is judged: long beside the call of an ordinary eviction (0.5 ms) and a tick, and short beside what a
/// client waits for.
const TENTH: Duration = Duration::from_millis(100);
/// A longer span says too little of what happened when in it, and is left out. The agent reads ten times a second.
const LONGEST: Duration = Duration::from_secs(1);
/// Evictions or expire cycles stall a server when they take this share of a thread that has no time to spare: with less, other work
/// would fill the thread without them too.
const LARGE_SHARE: f64 = 0.2;
/// A thread that has work for this share of the time has none to spare. Waiting for a CPU is having work.
const SATURATED: f64 = 0.9;
/// The kernel brings a thread's CPU time up to date when it is switched out and at each tick, 1 to 10 ms apart, so
/// this much of a span's work may show only in the next one. It is allowed to be late once, not again and again:
/// what a span lacked counts against the next.
const TICK_NS: f64 = 10e6;

/// What stalls a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallCause {
    /// Evicting calls.
    Eviction,
    /// Expire cycles.
    Expire,
}

/// Adds up the time in which a server was stalled.
#[derive(Clone, Debug)]
pub(super) struct Stalls {
    /// By [`StallCause`].
    stalled: [Duration; 2],
    /// Until when time was counted.
    counted_to: Duration,
    /// The beginning of the span that is not judged yet.
    begin: Option<Reading>,
    last: Option<Reading>,
    /// Time in evicting calls that were not observed since then, by what they evicted, nanoseconds.
    unobserved_ns: f64,
    pace: EvictionPace,
    /// The work that earlier spans lacked and that may still show, nanoseconds.
    late_ns: f64,
}

impl Stalls {
    /// Begins with a server that was not read yet.
    pub fn new() -> Self {
        Self {
            stalled: [Duration::ZERO; 2],
            counted_to: Duration::ZERO,
            begin: None,
            last: None,
            unobserved_ns: 0.0,
            pace: EvictionPace::default(),
            late_ns: TICK_NS,
        }
    }

    /// Returns the time in which the server was stalled by this.
    pub fn total(&self, by: StallCause) -> Duration {
        self.stalled[by as usize]
    }

    /// Takes in a reading that is later than the one before; `None` where the main thread's times could not be read.
    pub fn advance(&mut self, now: Option<Reading>) {
        let last = std::mem::replace(&mut self.last, now);
        let (Some(now), Some(last), Some(begin)) = (now, last, self.begin) else {
            self.begin_at(now);
            return;
        };
        self.unobserved_ns += self.pace.unobserved_ns(&last, &now);
        let span = now.at.saturating_sub(begin.at);
        let long_call = now
            .under_way_since()
            .filter(|since| now.at.saturating_sub(*since) >= TENTH);
        if span.is_zero() || span < TENTH && long_call.is_none() {
            return;
        }
        if span <= LONGEST
            && let Some(cause) = self.cause(&begin, &now)
        {
            let from = long_call.map_or(begin.at, |since| since.min(begin.at));
            self.stalled[cause as usize] += now.at.saturating_sub(from.max(self.counted_to));
            self.counted_to = now.at;
        }
        self.begin_at(Some(now));
    }

    fn begin_at(&mut self, now: Option<Reading>) {
        self.begin = now;
        self.unobserved_ns = 0.0;
    }

    /// Returns what took a large share of a main thread that had none to spare, where something did.
    fn cause(&mut self, begin: &Reading, now: &Reading) -> Option<StallCause> {
        let span_ns = now.at.saturating_sub(begin.at).as_nanos() as f64;
        let evicting_ns =
            now.evicting_ns.saturating_sub(begin.evicting_ns) as f64 + self.unobserved_ns;
        let expiring_ns = now.expiring_ns.saturating_sub(begin.expiring_ns) as f64;
        let had_no_time = self.had_no_time(begin, now, span_ns);
        let (cause, taken_ns) = match expiring_ns > evicting_ns {
            true => (StallCause::Expire, expiring_ns),
            false => (StallCause::Eviction, evicting_ns),
        };
        (had_no_time && taken_ns >= LARGE_SHARE * span_ns).then_some(cause)
    }

    /// Tells whether the main thread had work all the time, as far as can be seen by now.
    fn had_no_time(&mut self, begin: &Reading, now: &Reading, span_ns: f64) -> bool {
        let cpu_ns = now.times.cpu_ns.saturating_sub(begin.times.cpu_ns);
        let waiting_ns = now.times.waiting_ns.saturating_sub(begin.times.waiting_ns);
        let work_ns = (cpu_ns + waiting_ns) as f64;
        let lacks_ns = (self.late_ns + SATURATED * span_ns - work_ns).max(0.0);
        self.late_ns = lacks_ns.min(TICK_NS);
        lacks_ns <= TICK_NS
    }
}

#[cfg(test)]
mod tests;
