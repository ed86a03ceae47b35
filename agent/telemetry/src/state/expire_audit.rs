//! Checks whether the counts of expire cycles agree with what the server itself counts.
//!
//! The server's counters are read a moment after those of the programs, and cycles go on meanwhile. So a window begins
//! and ends at moments without a cycle under way, and what the server counted in it lies between two differences: from
//! before its beginning to after its end, and from after its beginning to before its end.
//!
//! One wrong window proves nothing: `CONFIG RESETSTAT` sets the server's counters to 0, which shows only if they then
//! go back, and the server's clock may be set. Several wrong windows in a row are proof.

use std::time::Duration;

use crate::{BrokenInvariant, Withdrawal};

/// A window has at least this many cycles: 10 s of an idle server, a second of one that is busy with expiry.
const LEAST_CYCLES: u64 = 100;
/// Time is compared if there is at least this much of it …
const LEAST_TIME: Duration = Duration::from_millis(100);
/// … and cycles take at least this long on average: the server counts whole microseconds, and includes the time of the
/// probes.
const LEAST_MEAN: Duration = Duration::from_micros(50);
/// The server's time in cycles begins before the early returns, and ends a little before or after ours. A site in the
/// wrong place is off by more than this factor: by the whole loop.
const FACTOR: f64 = 2.0;
/// How many windows in a row must be wrong.
const WINDOWS: u64 = 3;

/// What the server itself counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerCounts {
    /// Keys that have expired, in a cycle or when they were asked for.
    pub expired_keys: Option<u64>,
    /// Time in cycles, microseconds.
    pub cycle_us: Option<u64>,
}

/// What the programs have counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CycleCounts {
    pub cycles: u64,
    /// Time in them, nanoseconds.
    pub ns: u64,
    /// Keys that had expired.
    pub expired: u64,
}

/// A moment at which no cycle was under way.
#[derive(Clone, Copy, Debug)]
struct Edge {
    before: ServerCounts,
    seen: CycleCounts,
    after: ServerCounts,
}

/// Compares the server's counts with the programs' counts, window by window.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpireAudit {
    last: Option<ServerCounts>,
    begin: Option<Edge>,
    keys: Windows,
    time: Windows,
}

/// Windows that were tested.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    /// How many of the last windows in a row were wrong.
    wrong: u64,
    tested: u64,
}

impl Windows {
    fn count(&mut self, is_wrong: bool) {
        self.tested += 1;
        self.wrong = if is_wrong { self.wrong + 1 } else { 0 };
    }

    fn contradict(self, broken: BrokenInvariant) -> Option<Withdrawal> {
        (self.wrong >= WINDOWS).then(|| Withdrawal::of(broken, self.wrong, self.tested))
    }
}

impl ExpireAudit {
    /// Takes in a reading; `seen` is `None` if a cycle was under way.
    pub fn advance(&mut self, now: ServerCounts, seen: Option<CycleCounts>) {
        let Some(before) = self.last.replace(now) else { return };
        if has_gone_back(&before, &now) {
            self.begin = None;
            return;
        }
        let Some(seen) = seen else { return };
        let end = Edge { before, seen, after: now };
        let Some(begin) = self.begin else {
            self.begin = Some(end);
            return;
        };
        let counted = seen.cycles.saturating_sub(begin.seen.cycles);
        if counted >= LEAST_CYCLES || counted == 0 && has_worked(&begin, &end) {
            self.compare_keys(&begin, &end);
            self.compare_time(&begin, &end);
            self.begin = Some(end);
        }
    }

    /// Checks that no more keys expired in cycles than in all.
    fn compare_keys(&mut self, begin: &Edge, end: &Edge) {
        let expired = end.seen.expired.saturating_sub(begin.seen.expired);
        let most = difference(begin.before.expired_keys, end.after.expired_keys);
        if let Some(most) = most.filter(|_| expired > 0) {
            self.keys.count(expired > most);
        }
    }

    /// Checks that cycles took about as long as the server says.
    fn compare_time(&mut self, begin: &Edge, end: &Edge) {
        let seconds = |us: Option<u64>| us.map(|us| us as f64 / 1e6);
        let (most, least) = (
            seconds(difference(begin.before.cycle_us, end.after.cycle_us)),
            seconds(difference(begin.after.cycle_us, end.before.cycle_us)),
        );
        let (Some(most), Some(least)) = (most, least) else { return };
        let cycles = end.seen.cycles.saturating_sub(begin.seen.cycles) as f64;
        let taken = end.seen.ns.saturating_sub(begin.seen.ns) as f64 / 1e9;
        let is_enough = |time: f64| time >= LEAST_TIME.as_secs_f64() && time >= cycles * LEAST_MEAN.as_secs_f64();
        if is_enough(taken.max(least)) {
            self.time.count(taken > FACTOR * most || least > FACTOR * taken);
        }
    }

    /// Returns what the server contradicts, once it is certain.
    pub fn contradiction(&self) -> Option<Withdrawal> {
        self.keys.contradict(BrokenInvariant::ExpiredKeys).or_else(|| self.time.contradict(BrokenInvariant::CycleTime))
    }
}

fn has_worked(begin: &Edge, end: &Edge) -> bool {
    let us = difference(begin.after.cycle_us, end.before.cycle_us);
    us.is_some_and(|us| Duration::from_micros(us) >= LEAST_TIME)
}

fn difference(from: Option<u64>, to: Option<u64>) -> Option<u64> {
    to?.checked_sub(from?)
}

/// Returns whether a counter was set back, or is no longer known.
fn has_gone_back(before: &ServerCounts, now: &ServerCounts) -> bool {
    let counters = |now: &ServerCounts| [now.expired_keys, now.cycle_us];
    counters(before).into_iter().zip(counters(now)).any(|(before, now)| before > now)
}

#[cfg(test)]
mod tests {
    use super::{BrokenInvariant, CycleCounts, ExpireAudit, ServerCounts};

    /// A server whose cycles are read now and then.
    struct Server {
        audit: ExpireAudit,
        now: ServerCounts,
        seen: CycleCounts,
    }

    impl Server {
        fn new() -> Self {
            let now = ServerCounts { expired_keys: Some(1_000_000), cycle_us: Some(90_000_000) };
            let mut server = Self { audit: ExpireAudit::default(), now, seen: CycleCounts::default() };
            server.read();
            server.read();
            server
        }

        fn read(&mut self) {
            self.audit.advance(self.now, Some(self.seen));
        }

        /// Makes cycles of 2 ms, each of which expires 50 keys, and counts them with these factors.
        fn cycles(&mut self, count: u64, keys: f64, time: f64) {
            for cycle in 0..count {
                self.seen.cycles += 1;
                self.seen.ns += (2e6 * time) as u64;
                self.seen.expired += (50.0 * keys) as u64;
                let add = |counter: &mut Option<u64>, by| *counter = counter.map(|value| value + by);
                add(&mut self.now.expired_keys, 50);
                add(&mut self.now.cycle_us, 2_000);
                if cycle % 5 == 0 {
                    self.read();
                }
            }
        }

        fn contradiction(&self) -> Option<(BrokenInvariant, u64)> {
            self.audit.contradiction().map(|found| (found.broken, found.failed))
        }
    }

    #[test]
    fn what_is_wrong_in_three_windows_in_a_row_is_a_contradiction() {
        // Cycles, and by what factors keys and time are counted wrong.
        for (cycles, times, expected) in [
            // Other keys expire when they are asked for.
            (&[(5_000, 1.0, 1.0), (5_000, 0.5, 0.9)][..], 1, None),
            (&[(220, 1.1, 1.0)], 1, None),
            (&[(220, 1.1, 1.0), (100, 1.1, 1.0)], 1, Some((BrokenInvariant::ExpiredKeys, 3))),
            (&[(320, 1.0, 0.4)], 1, Some((BrokenInvariant::CycleTime, 3))),
            (&[(320, 1.0, 3.0)], 1, Some((BrokenInvariant::CycleTime, 3))),
            // A window that is right ends a series of wrong ones.
            (&[(210, 1.1, 3.0), (210, 1.0, 1.0)], 10, None),
        ] {
            let mut server = Server::new();
            for (count, keys, time) in cycles.repeat(times) {
                server.cycles(count, keys, time);
            }
            assert_eq!(server.contradiction(), expected, "{cycles:?}");
            let seen = server.seen.cycles / 110;
            assert!(server.audit.keys.tested >= seen && server.audit.time.tested >= seen, "{cycles:?}");
        }
    }

    #[test]
    fn counters_that_are_set_back_prove_nothing() {
        let mut server = Server::new();
        for _ in 0..50 {
            server.cycles(90, 1.0, 1.0);
            server.now.expired_keys = Some(0);
            server.now.cycle_us = Some(0);
        }
        assert_eq!(server.contradiction(), None);
    }

    #[test]
    fn a_cycle_between_the_two_readings_proves_nothing() {
        let mut server = Server::new();
        for round in 0..2_000_u64 {
            server.cycles(1, 1.0, 1.0);
            // The programs have not counted all that the server has, or their counts were read first.
            let late = CycleCounts {
                cycles: server.seen.cycles - round % 2,
                ns: server.seen.ns - 2_000_000 * (round % 2),
                expired: server.seen.expired - 50 * (round % 2),
            };
            server.audit.advance(server.now, Some(late));
        }
        assert_eq!(server.contradiction(), None);
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let mut server = Server::new();
        server.now = ServerCounts::default();
        server.cycles(2_000, 5.0, 5.0);
        assert_eq!(server.contradiction(), None);
        // The server counts no time for these cycles, because they begin and end in the same microsecond.
        let mut server = Server::new();
        for _ in 0..20_000 {
            server.seen.cycles += 1;
            server.seen.ns += 900;
            server.read();
        }
        assert_eq!(server.contradiction(), None);
    }

    #[test]
    fn cycles_that_are_never_seen_are_a_contradiction() {
        let mut server = Server::new();
        for _ in 0..20 {
            server.now.cycle_us = server.now.cycle_us.map(|us| us + 30_000);
            server.read();
        }
        assert_eq!(server.contradiction().map(|(broken, _)| broken), Some(BrokenInvariant::CycleTime));
        // An idle server's cycles take next to no time.
        let mut idle = Server::new();
        for _ in 0..2_000 {
            idle.now.cycle_us = idle.now.cycle_us.map(|us| us + 10);
            idle.read();
        }
        assert_eq!(idle.contradiction(), None);
    }
}
