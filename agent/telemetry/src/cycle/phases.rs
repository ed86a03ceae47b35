//! The phases of the cycle, and the time spent in each.

use std::fmt;
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Deserialize, Serialize};

/// Where in the cycle a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, BorshSerialize, BorshDeserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    NotSaturated,
    /// Memory is at its limit: evicting calls are made.
    Saturated,
    /// Evicting calls have stopped, and memory keeps falling.
    Reclaim,
}

impl Phase {
    pub const ALL: [Self; 3] = [Self::NotSaturated, Self::Saturated, Self::Reclaim];
}

/// The spelling of the label `phase`.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Serialize::serialize(self, f)
    }
}

/// The present phase, and how long each lasted. Time is credited to a phase only when it certainly belongs there, and
/// never taken back. Whether an evicting call was the last is known only a quiet time later, and when a reclaim was
/// over only when memory no longer falls; until then, the time since is missing from all phases.
#[derive(Clone, Copy, Debug)]
pub struct Phases {
    pub phase: Phase,
    pub(super) credited_to: Duration,
    time: [Duration; 3],
}

impl Phases {
    /// Begins with a server that was found at the monotonic time `at`.
    pub(super) fn new(at: Duration) -> Self {
        Self { phase: Phase::NotSaturated, credited_to: at, time: [Duration::ZERO; 3] }
    }

    pub(super) fn credit(&mut self, until: Duration) {
        self.time[self.phase as usize] += until.saturating_sub(self.credited_to);
        self.credited_to = self.credited_to.max(until);
    }

    pub(super) fn enter(&mut self, phase: Phase, at: Duration) {
        self.credit(at);
        self.phase = phase;
    }

    /// Returns how long a phase lasted, over all its visits. The sum of all phases lags behind the time since the
    /// server was found by a quiet time, and in a reclaim by what may not belong to it.
    pub fn time(&self, phase: Phase) -> Duration {
        self.time[phase as usize]
    }
}
