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

use super::reading::{Inside, Reading};
use crate::units::nanoseconds;

/// How long a request waits before its client is stalled, unless the user sets it. People notice a tenth of a second.
pub const STALL_THRESHOLD: Duration = Duration::from_millis(100);
/// How far back readings are kept. The cause of a longer wait is what took the thread's time in these last seconds.
const SPAN: Duration = Duration::from_secs(10);

/// What takes a main thread's time while a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallCause {
    /// Evicting calls.
    Eviction,
    /// Expire cycles.
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
        f.write_str(match self {
            Self::Eviction => "eviction",
            Self::Expire => "expire",
            Self::Commands => "commands",
            Self::Cpu => "cpu",
            Self::Blocked => "blocked",
            Self::Unknown => "unknown",
        })
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
    readings: VecDeque<Reading>,
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
    pub fn advance(&mut self, now: Reading) {
        self.readings.push_back(now);
        let is_over = |first: &mut Reading| now.at.saturating_sub(first.at) > SPAN;
        while self.readings.pop_front_if(is_over).is_some() {}
    }

    /// Takes in since when and until when requests waited, according to a look right after the last reading. Returns
    /// what stalled clients last, if anything did since the look before.
    pub fn take_in(&mut self, waits: &[(Duration, Duration)]) -> Option<StallCause> {
        let mut stalls: Vec<_> = waits.iter().map(|(since, to)| (*since, *to)).collect();
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
        let earlier = self.readings.partition_point(|reading| reading.at <= from);
        let begin = earlier.saturating_sub(1);
        let end = self.readings.partition_point(|reading| reading.at < to);
        let end = end.min(self.readings.len().saturating_sub(1)).max(begin);
        let (Some(begin), Some(end), between) =
            (self.readings.get(begin), self.readings.get(end), self.readings.range(begin.min(end)..end))
        else {
            return StallCause::Unknown;
        };
        let grown = |counter: fn(&Reading) -> u64| counter(end).saturating_sub(counter(begin));
        let waiting = grown(|one| one.times.waiting_ns);
        // The thread may have rested between the reading before and the request.
        let span = nanoseconds(to.saturating_sub(from.max(begin.at)));
        let had_cpu = span.saturating_sub(waiting);
        let eviction = grown(|one| one.eviction.unwrap_or_default().ns).min(had_cpu);
        let expire = grown(|one| one.expire.unwrap_or_default().ns).min(had_cpu - eviction);
        let commands = grown(|one| {
            let inside = |of: Option<Inside>| of.unwrap_or_default().cpu_ns;
            let called = inside(one.eviction) + inside(one.expire);
            one.times.cpu_ns.saturating_sub(called)
        });
        let known = match (end.eviction, end.expire) {
            (Some(_), Some(_)) => StallCause::Commands,
            _ => StallCause::Unknown,
        };
        let rests = |one: &Reading| one.at > from && one.is_resting == Some(true);
        let slept = match between.clone().any(rests) || end.at <= to && rests(end) {
            true => StallCause::Unknown,
            false => StallCause::Blocked,
        };
        let times = [
            (StallCause::Eviction, eviction),
            (StallCause::Expire, expire),
            (known, commands),
            (StallCause::Cpu, waiting),
            (slept, had_cpu.saturating_sub(eviction + expire + commands)),
        ];
        let longest = times.into_iter().max_by_key(|(_, ns)| *ns);
        longest.map_or(StallCause::Unknown, |(cause, _)| cause)
    }
}

#[cfg(test)]
mod tests;
