//! The time for which clients of a server were stalled, by what its main thread did meanwhile.
//!
//! Clients are stalled while some request has waited for longer than a threshold. That is counted as it happens: it
//! needs neither a usual load to compare with nor the end of a burst. The cause is what has taken most of the main
//! thread's time since that request came. Inside an evicting call or an expire cycle, whatever the thread does is that
//! call's, except waiting for a CPU. While a request waits, the thread cannot rest: if it sleeps elsewhere, it is
//! blocked.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Deserialize, Serialize};

use crate::{ThreadTimes, nanoseconds};

/// How long a request waits before its client is stalled, unless the user sets it. People notice a tenth of a second.
pub const STALL_THRESHOLD: Duration = Duration::from_millis(100);
/// How far back readings are kept. The cause of a longer wait is what took the thread's time in these last seconds.
const SPAN: Duration = Duration::from_secs(10);

/// What takes a main thread's time while a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallCause {
    Eviction,
    Expire,
    /// Whatever else it executes: commands above all.
    Commands,
    /// It was ready to run and had no CPU: another process or a quota.
    Cpu,
    /// It slept outside its event loop: a disk, a lock, a stopped process.
    Blocked,
    /// It slept in its event loop, or ran while evicting calls or expire cycles were not timed, or what it did is not
    /// known.
    Unknown,
}

impl StallCause {
    /// All causes, in the order in which they are shown.
    pub const ALL: [Self; 6] = [Self::Eviction, Self::Expire, Self::Commands, Self::Cpu, Self::Blocked, Self::Unknown];
}

/// The spelling of the label `cause`.
impl fmt::Display for StallCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// Adds up the time for which clients of a server were stalled.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    threshold: Duration,
    /// By [`StallCause`].
    stalled: [Duration; StallCause::ALL.len()],
    /// Until when time has been counted.
    counted_to: Duration,
    /// The last readings, oldest first.
    readings: VecDeque<StallReading>,
}

impl Default for Stalls {
    fn default() -> Self {
        Self::new(STALL_THRESHOLD)
    }
}

impl Stalls {
    /// Begins with a server that has not been read yet, whose clients are stalled while a request waits for longer than
    /// `threshold`.
    pub fn new(threshold: Duration) -> Self {
        Self { threshold, stalled: Default::default(), counted_to: Duration::ZERO, readings: VecDeque::new() }
    }

    /// Returns the time for which this cause stalled clients.
    pub fn total(&self, by: StallCause) -> Duration {
        self.stalled[by as usize]
    }

    /// Takes in a reading that is later than the one before.
    pub fn advance(&mut self, now: StallReading) {
        self.readings.push_back(now);
        let is_over = |first: &mut StallReading| now.at.saturating_sub(first.at) > SPAN;
        while self.readings.pop_front_if(is_over).is_some() {}
    }

    /// Takes in since when and until when requests waited, according to a look right after the last reading. Returns
    /// what stalled clients last, if anything did since the look before.
    pub fn take_in(&mut self, waits: &[(Duration, Duration)]) -> Option<StallCause> {
        let mut stalls = waits.to_vec();
        stalls.retain(|(since, to)| (*since + self.threshold).max(self.counted_to) < *to);
        stalls.sort_unstable();
        let mut stalled_by = None;
        let mut stalls = stalls.into_iter().peekable();
        while let Some((since, mut to)) = stalls.next() {
            while let Some((_, later)) = stalls.next_if(|(next, _)| *next + self.threshold <= to) {
                to = to.max(later);
            }
            let from = (since + self.threshold).max(self.counted_to);
            let cause = self.cause(since, to);
            self.stalled[cause as usize] += to.saturating_sub(from);
            self.counted_to = self.counted_to.max(to);
            stalled_by = Some(cause);
        }
        stalled_by
    }

    /// Returns what took most of the main thread's time between two moments.
    fn cause(&self, from: Duration, to: Duration) -> StallCause {
        let begin = self.readings.partition_point(|reading| reading.at <= from).saturating_sub(1);
        let end = self.readings.partition_point(|reading| reading.at < to);
        let end = end.min(self.readings.len().saturating_sub(1)).max(begin);
        let (Some(begin), Some(end), between) =
            (self.readings.get(begin), self.readings.get(end), self.readings.range(begin.min(end)..end))
        else {
            return StallCause::Unknown;
        };
        let grown = |counter: fn(&StallReading) -> u64| counter(end).saturating_sub(counter(begin));
        let waiting = grown(|reading| reading.times.waiting_ns);
        // The thread may have rested between the reading before and the request.
        let had_cpu = nanoseconds(to.saturating_sub(from.max(begin.at))).saturating_sub(waiting);
        let eviction = grown(|reading| reading.eviction.unwrap_or_default().ns).min(had_cpu);
        let expire = grown(|reading| reading.expire.unwrap_or_default().ns).min(had_cpu - eviction);
        let commands = grown(|reading| {
            let inside = |of: Option<Inside>| of.unwrap_or_default().cpu_ns;
            reading.times.cpu_ns.saturating_sub(inside(reading.eviction) + inside(reading.expire))
        });
        let known = match (end.eviction, end.expire) {
            (Some(_), Some(_)) => StallCause::Commands,
            _ => StallCause::Unknown,
        };
        let rests = |reading: &StallReading| reading.at > from && reading.is_resting == Some(true);
        let slept = if between.clone().any(rests) || end.at <= to && rests(end) {
            StallCause::Unknown
        } else {
            StallCause::Blocked
        };
        let times = [
            (StallCause::Eviction, eviction),
            (StallCause::Expire, expire),
            (known, commands),
            (StallCause::Cpu, waiting),
            (slept, had_cpu.saturating_sub(eviction + expire + commands)),
        ];
        times.into_iter().max_by_key(|(_, ns)| *ns).map_or(StallCause::Unknown, |(cause, _)| cause)
    }
}

/// A reading of a main thread. All times only grow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallReading {
    pub at: Duration,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{Inside, StallCause, StallReading, Stalls};
    use crate::ThreadTimes;

    /// What a main thread does in each millisecond, microseconds.
    #[derive(Clone, Copy, Debug, Default)]
    struct Doing {
        eviction: u64,
        expire: u64,
        commands: u64,
        waiting: u64,
        /// Asleep inside an evicting call.
        asleep: u64,
        is_resting: Option<bool>,
    }

    const IDLE: Doing = Doing { eviction: 0, expire: 0, commands: 20, waiting: 0, asleep: 0, is_resting: Some(true) };

    const EVICTING: Doing = Doing { eviction: 1_000, commands: 0, is_resting: None, ..IDLE };

    /// A server whose oldest request came at some moment.
    struct Server {
        stalls: Stalls,
        now: StallReading,
        oldest: Option<Duration>,
    }

    impl Server {
        fn new() -> Self {
            let mut server = Self {
                stalls: Stalls::default(),
                now: StallReading {
                    at: Duration::from_secs(5),
                    times: ThreadTimes { cpu_ns: 0, waiting_ns: 0 },
                    eviction: Some(Inside::default()),
                    expire: Some(Inside::default()),
                    is_resting: None,
                },
                oldest: None,
            };
            server.stalls.advance(server.now);
            server
        }

        /// Goes on for some milliseconds, and is read and looked at every `every` of them.
        fn goes_on(&mut self, doing: Doing, milliseconds: u64, every: u64) {
            for step in 1..=milliseconds {
                let now = &mut self.now;
                now.at += Duration::from_millis(1);
                let add = |to: &mut Option<Inside>, us: u64, asleep: u64| {
                    if let Some(inside) = to {
                        inside.ns += (us + asleep) * 1_000;
                        inside.cpu_ns += us * 1_000;
                    }
                };
                add(&mut now.eviction, doing.eviction, doing.asleep);
                add(&mut now.expire, doing.expire, 0);
                now.times.cpu_ns += (doing.eviction + doing.expire + doing.commands) * 1_000;
                now.times.waiting_ns += doing.waiting * 1_000;
                now.is_resting = doing.is_resting;
                if step % every == 0 {
                    self.stalls.advance(self.now);
                    if let Some(oldest) = self.oldest {
                        self.stalls.take_in(&[(oldest, self.now.at)]);
                    }
                }
            }
        }

        /// Does the same while a request that comes now waits.
        fn stalls(&mut self, doing: Doing, milliseconds: u64, every: u64) {
            self.oldest = Some(self.now.at);
            self.goes_on(doing, milliseconds, every);
            self.oldest = None;
        }

        fn stalled(&self) -> [u128; 6] {
            StallCause::ALL.map(|cause| self.stalls.total(cause).as_millis())
        }
    }

    #[test]
    fn each_cause_is_told() {
        let busy = |doing: Doing| {
            let mut server = Server::new();
            server.goes_on(IDLE, 2_050, 100);
            server.stalls(doing, 500, 20);
            server.goes_on(IDLE, 2_000, 100);
            server.stalled()
        };
        for (cause, [eviction, expire, commands, waiting]) in [
            (StallCause::Eviction, [600, 0, 400, 0]),
            (StallCause::Expire, [0, 600, 400, 0]),
            (StallCause::Commands, [300, 0, 700, 0]),
            (StallCause::Cpu, [250, 0, 100, 650]),
        ] {
            let doing = Doing { eviction, expire, commands, waiting, ..Doing::default() };
            let mut stalled = [0; StallCause::ALL.len()];
            stalled[cause as usize] = 400;
            assert_eq!(busy(doing), stalled, "{cause}");
        }
        assert_eq!(busy(Doing { is_resting: Some(false), ..Doing::default() }), [0, 0, 0, 0, 400, 0]);
        // A page or a disk again and again: it is not seen asleep at a reading.
        assert_eq!(busy(Doing { commands: 100, waiting: 300, ..Doing::default() }), [0, 0, 0, 0, 400, 0]);
        // It waits for its lazy-free thread.
        let asleep = Doing { eviction: 10, asleep: 990, is_resting: Some(false), ..Doing::default() };
        assert_eq!(busy(asleep), [400, 0, 0, 0, 0, 0]);
        assert_eq!(busy(IDLE), [0, 0, 0, 0, 0, 400]);
    }

    #[test]
    fn what_it_did_before_the_request_is_no_cause() {
        let mut server = Server::new();
        server.goes_on(EVICTING, 5_000, 20);
        // Read ten times a second, it rested until the request came.
        server.goes_on(IDLE, 1_090, 100);
        server.stalls(Doing { commands: 1_000, ..Doing::default() }, 310, 100);
        assert_eq!(server.stalled(), [0, 0, 200, 0, 0, 0]);
    }

    #[test]
    fn what_may_be_evictions_is_not_said_to_be_commands() {
        let mut server = Server::new();
        server.now.eviction = None;
        server.stalls(Doing { eviction: 600, commands: 400, ..Doing::default() }, 500, 20);
        assert_eq!(server.stalled(), [0, 0, 0, 0, 0, 400]);
    }

    #[test]
    fn a_server_that_was_never_read_is_stalled_by_what_is_not_known() {
        let mut stalls = Stalls::default();
        stalls.take_in(&[(Duration::from_secs(8), Duration::from_secs(9))]);
        assert_eq!(stalls.total(StallCause::Unknown), Duration::from_millis(900));
    }

    #[test]
    fn each_stall_ends_when_its_last_request_was_answered() {
        let mut stalls = Stalls::default();
        let ms = Duration::from_millis;
        // Two pauses of 0.15 s between two looks, each felt by two clients.
        let waits = [
            (ms(5_000), ms(5_150)),
            (ms(5_500), ms(5_640)),
            (ms(5_010), ms(5_150)),
            (ms(5_502), ms(5_650)),
            (ms(5_700), ms(5_760)),
        ];
        assert_eq!(stalls.take_in(&waits), Some(StallCause::Unknown));
        assert_eq!(stalls.total(StallCause::Unknown), ms(100));
        assert_eq!(stalls.take_in(&waits), None);
    }

    proptest! {
        #[test]
        fn clients_are_stalled_for_as_long_as_requests_wait_over_the_threshold(
            waits in prop::collection::vec((1..400_u64, 0..1_000_u64), 1..40),
        ) {
            let mut server = Server::new();
            let mut stalled = 0;
            for (pause, wait) in waits {
                server.goes_on(IDLE, pause, 20);
                server.stalls(IDLE, wait / 20 * 20, 20);
                stalled += u128::from((wait / 20 * 20).saturating_sub(100));
            }
            prop_assert_eq!(server.stalled().iter().sum::<u128>(), stalled);
        }
    }
}
