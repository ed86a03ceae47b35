//! The time for which clients of a server were stalled, by what its main thread did meanwhile.
//!
//! Clients are stalled while some request has waited for longer than a threshold. That is counted as it happens: it needs neither
//! a usual load to compare with nor the end of a burst. The cause is what has taken most of the main thread's time since that
//! request came. A stall ends at the last look that found such a request, so it is too short by up to the time between two looks.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Deserialize, Serialize};

use super::reading::Reading;
use crate::units::nanoseconds;

/// How long a request waits before its client is stalled, unless the user sets it. People notice a tenth of a second.
pub const STALL_THRESHOLD: Duration = Duration::from_millis(100);
/// How far back readings are kept. The cause of a longer wait is what took the thread's time in these last seconds.
const SPAN: Duration = Duration::from_secs(10);

/// What takes a main thread's time while a request waits.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize,
)]
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
    /// It slept in its event loop, or ran while evicting calls or expire cycles were not timed, or what it did is not known.
    Unknown,
}

impl StallCause {
    /// All causes, in the order in which they are shown.
    pub const ALL: [Self; 6] = [
        Self::Eviction,
        Self::Expire,
        Self::Commands,
        Self::Cpu,
        Self::Blocked,
        Self::Unknown,
    ];
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
        Self {
            threshold,
            stalled: Default::default(),
            counted_to: Duration::ZERO,
            readings: VecDeque::new(),
        }
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

    /// Takes in a look at `at`, right after the last reading, that found a request waiting since `oldest`. Returns what stalls
    /// clients, if anything does.
    pub fn look(&mut self, at: Duration, oldest: Duration) -> Option<StallCause> {
        let from = (oldest + self.threshold).max(self.counted_to);
        let stalled = at.checked_sub(from).filter(|stalled| !stalled.is_zero())?;
        let cause = self.cause(oldest, at);
        self.stalled[cause as usize] += stalled;
        self.counted_to = at;
        Some(cause)
    }

    /// Returns what took most of the main thread's time between two moments.
    fn cause(&self, from: Duration, to: Duration) -> StallCause {
        let earlier = self.readings.partition_point(|reading| reading.at <= from);
        let begin = self.readings.get(earlier.saturating_sub(1));
        let (Some(begin), Some(end)) = (begin, self.readings.back()) else {
            return StallCause::Unknown;
        };
        let grown = |counter: fn(&Reading) -> u64| counter(end).saturating_sub(counter(begin));
        let eviction = grown(|one| one.eviction_ns.unwrap_or(0));
        let expire = grown(|one| one.expire_ns.unwrap_or(0));
        let rest = match (end.eviction_ns, end.expire_ns) {
            (Some(_), Some(_)) => StallCause::Commands,
            _ => StallCause::Unknown,
        };
        let cpu = grown(|one| one.times.cpu_ns);
        let waiting = grown(|one| one.times.waiting_ns);
        // The thread may have rested between the reading before and the request.
        let span = nanoseconds(to.saturating_sub(from.max(begin.at)));
        let slept = match end.is_resting {
            Some(false) => StallCause::Blocked,
            _ => StallCause::Unknown,
        };
        let times = [
            (StallCause::Eviction, eviction),
            (StallCause::Expire, expire),
            (rest, cpu.saturating_sub(eviction + expire)),
            (StallCause::Cpu, waiting),
            (slept, span.saturating_sub(cpu + waiting)),
        ];
        let longest = times.into_iter().max_by_key(|(_, ns)| *ns);
        longest.map_or(StallCause::Unknown, |(cause, _)| cause)
    }
}

#[cfg(test)]
mod tests;
