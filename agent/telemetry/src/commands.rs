//! Which commands took a server's time: what its own counters of each command grew by from one reading to the next.
//!
//! The server adds to them when a command ends. A script's time, and that of EXEC, includes that of the commands in it,
//! which are counted themselves, too. Commands of modules are not among them: the server's count of all commands says
//! how many are missing, and if it says that there are too many, the counters are not what they seem.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::microseconds;

/// For how long spans are kept: a record has six minutes and a half at most.
const KEPT: Duration = Duration::from_secs(600);
/// A span is not longer, unless the table was not read for longer.
const SPAN: Duration = Duration::from_secs(1);
/// If the server was not read for longer, it did nothing for most of that time.
const LONGEST: Duration = Duration::from_secs(2);
/// The most spans that are kept.
const MOST: usize = 1_500;
/// How many commands are kept of a span by time, and how many by calls.
const TOP: usize = 5;
/// By how many calls the counters may be ahead of the server's count of all commands: it adds to that a little later.
const AHEAD: u64 = 16;
/// Fewer calls, or a smaller share of all, may be missing because the two are not read at the same moment.
const MISSING: (u64, f64) = (100, 0.02);

/// What a server counts of a command. All of it only grows, until `CONFIG RESETSTAT`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandCounts {
    /// Calls that ran.
    pub calls: u64,
    /// The time that they took, microseconds.
    pub us: u64,
    /// Calls that were refused before they ran; 0 where the server does not count them.
    pub rejected: u64,
    /// Calls that ran and answered an error, likewise.
    pub failed: u64,
}

/// What commands took between two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSpan {
    pub from_us: u64,
    pub to_us: u64,
    /// Whether clients were stalled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_stalled: bool,
    /// Those that took most, and those that were called most often; the first took most.
    pub commands: Vec<CommandShare>,
    /// All others: their calls, and the time that they took, microseconds.
    #[serde(default)]
    pub rest: (u64, u64),
}

/// What a command took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandShare {
    /// As INFO names it: `get`, `config|get`.
    pub name: String,
    pub calls: u64,
    pub us: u64,
}

/// Adds up what commands took in these spans, the one that took most first; without a name, what is not known by name.
pub fn commands_in<'a>(spans: impl IntoIterator<Item = &'a CommandSpan>) -> Vec<CommandShare> {
    let mut all: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut add = |name: &'a str, more: (u64, u64)| {
        let sum = all.entry(name).or_default();
        *sum = plus(*sum, more);
    };
    for span in spans {
        span.commands.iter().for_each(|command| add(&command.name, (command.calls, command.us)));
        add("", span.rest);
    }
    let mut all: Vec<_> = (all.into_iter())
        .map(|(name, (calls, us))| CommandShare { name: name.to_owned(), calls, us })
        .filter(|command| command.calls > 0 || command.us > 0)
        .collect();
    all.sort_by_key(|command| (command.name.is_empty(), Reverse(command.us)));
    all
}

/// Returns whether a command's time includes that of others, which are counted themselves.
pub fn calls_others(name: &str) -> bool {
    ["eval", "fcall", "exec"].iter().any(|outer| name.starts_with(outer))
}

/// The counters of a server's commands, and what they grew by in the last ten minutes.
#[derive(Clone, Debug, Default)]
pub struct CommandLog {
    names: Arc<[String]>,
    counts: Vec<CommandCounts>,
    /// Until when they are known, monotonic; `None` if they were not read yet.
    pub at: Option<Duration>,
    /// All calls, and all commands by the server's own count, when it was first read or has begun again.
    begun: (u64, Option<u64>),
    /// All commands by that count just before the counters were read.
    processed: Option<u64>,
    /// What was added since `from`; whether clients were stalled.
    open: BTreeMap<u16, (u64, u64)>,
    from: Duration,
    is_stalled: bool,
    /// By the monotonic clock.
    spans: VecDeque<CommandSpan>,
}

impl CommandLog {
    /// Begins with a server that has commands of these names.
    pub fn new(names: Arc<[String]>) -> Self {
        Self { names, ..Self::default() }
    }

    /// Takes in that the server has executed no command until `at`.
    pub fn rested(&mut self, at: Duration) {
        if self.at.is_some() {
            self.at = Some(at);
            self.close_if(at, at.saturating_sub(self.from) >= SPAN);
        }
    }

    /// Takes in what was read at `at`, just after the server's own count of all commands, `processed`. Returns whether
    /// that can be: the counters are not what they seem if they know of more calls than it does.
    pub fn take_in(
        &mut self,
        at: Duration,
        counts: Vec<CommandCounts>,
        processed: Option<u64>,
        is_stalled: bool,
    ) -> bool {
        let before = std::mem::replace(&mut self.counts, counts);
        let has_fallen =
            |(now, before): (&CommandCounts, &CommandCounts)| now.calls < before.calls || now.us < before.us;
        let begins_again = processed < self.processed || self.counts.iter().zip(&before).any(has_fallen);
        let last = self.at.replace(at);
        let ahead = self.begun.1.zip(processed).map(|(begun, now)| {
            let calls = all_calls(&before).saturating_sub(self.begun.0);
            calls.saturating_sub(now.saturating_sub(begun))
        });
        self.processed = processed;
        let Some(last) = last.filter(|_| !begins_again && before.len() == self.counts.len()) else {
            self.begun = (all_calls(&self.counts), processed);
            self.open.clear();
            (self.from, self.is_stalled) = (at, is_stalled);
            return true;
        };
        if is_stalled != self.is_stalled {
            self.close_if(last, true);
            self.is_stalled = is_stalled;
        }
        self.from = self.from.max(at.saturating_sub(LONGEST));
        for (place, (now, before)) in (0_u16..).zip(self.counts.iter().zip(&before)) {
            if now != before {
                let sum = self.open.entry(place).or_default();
                *sum = plus(*sum, (now.calls - before.calls, now.us - before.us));
            }
        }
        self.close_if(at, at.saturating_sub(self.from) >= SPAN);
        ahead.is_none_or(|ahead| ahead <= AHEAD)
    }

    /// Ends the span that is being added up at `to`, if that is due.
    fn close_if(&mut self, to: Duration, is_due: bool) {
        if !is_due {
            return;
        }
        let open = std::mem::take(&mut self.open);
        self.spans.extend(self.kept(&open, to));
        self.from = to;
        let over = microseconds(to.saturating_sub(KEPT));
        while self.spans.len() > MOST || self.spans.front().is_some_and(|span| span.to_us < over) {
            self.spans.pop_front();
        }
    }

    fn kept(&self, open: &BTreeMap<u16, (u64, u64)>, to: Duration) -> Option<CommandSpan> {
        let mut all: Vec<_> = open.iter().map(|(place, (calls, us))| (*place, *calls, *us)).collect();
        all.sort_by_key(|(_, calls, us)| Reverse((*us, *calls)));
        let mut by_calls: Vec<u64> = all.iter().map(|(_, calls, _)| *calls).collect();
        by_calls.sort_unstable_by_key(|calls| Reverse(*calls));
        let often = by_calls.get(TOP).copied().unwrap_or(0);
        let (mut commands, mut rest) = (Vec::new(), (0, 0));
        for (rank, (place, calls, us)) in all.into_iter().enumerate() {
            if rank < TOP || calls > often {
                let name = self.names.get(usize::from(place)).cloned().unwrap_or_default();
                commands.push(CommandShare { name, calls, us });
            } else {
                rest = plus(rest, (calls, us));
            }
        }
        let (from_us, to_us) = (microseconds(self.from), microseconds(to));
        (!commands.is_empty()).then_some(CommandSpan { from_us, to_us, is_stalled: self.is_stalled, commands, rest })
    }

    /// Returns the counters as last read, with the name of each command.
    pub fn counts(&self) -> impl Iterator<Item = (&str, CommandCounts)> {
        self.names.iter().map(String::as_str).zip(self.counts.iter().copied())
    }

    /// Returns how many commands the server has executed that have no counters here, such as those of modules, since
    /// the agent found it; `None` if that is not known.
    pub fn others(&self) -> Option<u64> {
        let all = self.processed?.saturating_sub(self.begun.1?);
        let others = all.saturating_sub(all_calls(&self.counts).saturating_sub(self.begun.0));
        let (least, share) = MISSING;
        Some(if others < least || (others as f64) < share * all as f64 { 0 } else { others })
    }

    /// Returns the spans that overlap the time between two monotonic times, the oldest first; `since_1970` dates them.
    pub fn between(&self, from: Duration, to: Duration, since_1970: Duration) -> Vec<CommandSpan> {
        let open = self.at.and_then(|at| self.kept(&self.open, at));
        let within = |span: &&CommandSpan| span.to_us > microseconds(from) && span.from_us < microseconds(to);
        let dated = |us: u64| microseconds(since_1970).saturating_add(us);
        let spans = self.spans.iter().chain(&open).filter(within).map(|span| CommandSpan {
            from_us: dated(span.from_us),
            to_us: dated(span.to_us),
            ..span.clone()
        });
        spans.collect()
    }
}

/// Adds calls and microseconds. A server's memory may hold any number.
fn plus(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.saturating_add(other.0), one.1.saturating_add(other.1))
}

fn all_calls(counts: &[CommandCounts]) -> u64 {
    counts.iter().fold(0, |sum: u64, command| sum.saturating_add(command.calls))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CommandCounts, CommandLog, CommandShare, commands_in};

    const NAMES: usize = 8;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    struct Server {
        log: CommandLog,
        counts: Vec<CommandCounts>,
        processed: u64,
    }

    impl Server {
        fn new() -> Self {
            let names = (0..NAMES).map(|place| format!("c{place}")).collect();
            Self { log: CommandLog::new(names), counts: vec![CommandCounts::default(); NAMES], processed: 7 }
        }

        /// Calls commands, each for so long, and is read.
        fn read(&mut self, at: u64, called: &[(usize, u64, u64)], is_stalled: bool) -> bool {
            for (place, calls, us) in called {
                self.counts[*place].calls += calls;
                self.counts[*place].us += us;
                self.processed += calls;
            }
            self.log.take_in(ms(at), self.counts.clone(), Some(self.processed), is_stalled)
        }
    }

    #[test]
    fn a_stall_has_a_span_of_its_own_with_what_took_its_time() {
        let mut server = Server::new();
        server.counts[0].calls = 100;
        assert!(server.read(1_000, &[], false));
        assert!(server.read(1_500, &[(0, 5, 50)], false));
        let many: Vec<_> =
            (0..NAMES).map(|place| (place, 1 + 10 * (place == 7) as u64, 1_000 - place as u64)).collect();
        assert!(server.read(1_700, &many, true));
        assert!(server.read(1_750, &[(0, 0, 400_000)], true));
        assert!(server.read(1_800, &[(1, 1, 5)], false));
        server.log.rested(ms(4_000));
        let spans = server.log.between(Duration::ZERO, Duration::MAX, Duration::from_secs(1));
        let times: Vec<_> =
            spans.iter().map(|span| (span.from_us / 1_000, span.to_us / 1_000, span.is_stalled)).collect();
        assert_eq!(times, [(2_000, 2_500, false), (2_500, 2_750, true), (2_750, 5_000, false)]);
        let of = |command: &CommandShare| (command.name.clone(), command.calls, command.us);
        let stalled = commands_in(spans.iter().filter(|span| span.is_stalled));
        assert_eq!(of(&stalled[0]), ("c0".to_owned(), 1, 401_000));
        // The others by time, the one that is called most often, and the rest.
        let names: Vec<_> = stalled.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(names, ["c0", "c1", "c2", "c3", "c4", "c7", ""]);
        assert_eq!(of(&stalled[6]), (String::new(), 2, 995 + 994));
        assert_eq!(server.log.others(), Some(0));
    }

    #[test]
    fn counters_that_know_of_more_calls_than_the_server_are_wrong_and_fewer_are_of_modules() {
        let mut server = Server::new();
        assert!(server.read(0, &[(0, 10, 1)], false));
        server.processed += 5_000;
        assert!(server.read(1_000, &[(0, 10, 1)], false));
        assert_eq!(server.log.others(), Some(5_000));
        // CONFIG RESETSTAT
        (server.counts, server.processed) = (vec![CommandCounts::default(); NAMES], 0);
        assert!(server.read(2_000, &[(0, 1, 1)], false));
        assert_eq!(server.log.others(), Some(0));
        server.counts[3].calls += 1 << 20;
        assert!(server.read(3_000, &[(0, 1, 1)], false), "it may have been counted since");
        assert!(!server.read(4_000, &[(0, 1, 1)], false));
    }

    #[test]
    fn it_stays_bounded() {
        let mut server = Server::new();
        for step in 0..20_000 {
            server.read(step * 100, &[(0, 1, 1)], step % 3 == 0);
        }
        assert!(server.log.spans.len() <= super::MOST);
        assert!(server.log.between(ms(1_990_000), ms(1_999_000), Duration::ZERO).len() < 100);
    }
}
