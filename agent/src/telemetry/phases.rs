//! The phases of the cycle, and the time spent in each.

use std::fmt;
use std::time::Duration;

/// Where in the cycle a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No evicting calls.
    NotSaturated,
    /// Memory is at its limit: evicting calls are made.
    Saturated,
    /// Evicting calls have stopped, and memory keeps falling.
    Reclaim,
}

impl Phase {
    /// All of them, in the order of the cycle.
    pub const ALL: [Self; 3] = [Self::NotSaturated, Self::Saturated, Self::Reclaim];
}

/// The spelling of the label `phase`.
impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotSaturated => "not_saturated",
            Self::Saturated => "saturated",
            Self::Reclaim => "reclaim",
        })
    }
}

/// Which phase it is, and how long each lasted. Time is credited to a phase only when it is certain
/// that it belongs there, and never taken back: that the last evicting call was the last is known a
/// quiet time later. Until then it is missing from all of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseClock {
    phase: Phase,
    credited_to: Duration,
    time: [Duration; 3],
    entries: [u64; 3],
}

impl PhaseClock {
    /// A server that was found at `at`.
    pub fn new(at: Duration) -> Self {
        let mut entries = [0; 3];
        entries[Phase::NotSaturated as usize] = 1;
        Self {
            phase: Phase::NotSaturated,
            credited_to: at,
            time: [Duration::ZERO; 3],
            entries,
        }
    }

    /// Up to which moment the time is credited.
    pub fn credited_to(&self) -> Duration {
        self.credited_to
    }

    /// The phase is certain to have lasted until `until`.
    pub fn credit(&mut self, until: Duration) {
        self.time[self.phase as usize] += until.saturating_sub(self.credited_to);
        self.credited_to = self.credited_to.max(until);
    }

    /// Another phase began at `at`.
    pub fn enter(&mut self, phase: Phase, at: Duration) {
        self.credit(at);
        self.phase = phase;
        self.entries[phase as usize] += 1;
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The time credited to a phase.
    pub fn time(&self, phase: Phase) -> Duration {
        self.time[phase as usize]
    }

    /// How often a phase was entered.
    pub fn entries(&self, phase: Phase) -> u64 {
        self.entries[phase as usize]
    }
}
