//! What the cause of a stall is judged by.

use std::time::Duration;

use crate::ThreadTimes;

/// A reading of a main thread. All times only grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Monotonic time.
    pub at: Duration,
    /// The main thread's times.
    pub times: ThreadTimes,
    /// Time in evicting calls; `None` if these are not timed.
    pub eviction: Option<Inside>,
    /// The same in expire cycles.
    pub expire: Option<Inside>,
    /// Whether it slept in its event loop; `None` if it ran, or if that is not known.
    pub is_resting: Option<bool>,
}

/// Time inside calls of a function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Inside {
    /// All of it except waits for a CPU, nanoseconds: the thread may also have slept.
    pub ns: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
}

/// Adds up the time inside calls of a function without the waits for a CPU, also those in the call under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InsideCalls {
    /// That time, nanoseconds.
    pub ns: u64,
    /// When the call under way began, and how long the thread has waited in it.
    under_way: (Option<Duration>, u64),
    /// The last reading: when it was, and how long the thread had waited until then.
    last: Option<(Duration, u64)>,
}

impl InsideCalls {
    /// Takes in a reading at which the thread had waited for so long, and had spent `ns` inside calls, less the waits
    /// in those that have ended. The one under way began at `since`.
    pub fn follow(&mut self, thread: (Duration, u64), ns: u64, since: Option<Duration>) {
        let (at, waiting_ns) = thread;
        if self.under_way.0 != since {
            self.under_way = (since, 0);
        }
        if let Some((since, (before, waited_ns))) = since.zip(self.last) {
            let inside = at.saturating_sub(since.max(before)).as_secs_f64();
            let share = inside / at.saturating_sub(before).as_secs_f64().max(1e-9);
            let waited_ns = waiting_ns.saturating_sub(waited_ns) as f64 * share.min(1.0);
            self.under_way.1 += waited_ns as u64;
        }
        self.last = Some(thread);
        self.ns = self.ns.max(ns.saturating_sub(self.under_way.1));
    }
}
