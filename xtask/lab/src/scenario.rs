//! The scenarios: what each is called, and how long it lasts.

use std::{path::PathBuf, time::Duration};

use clap::ValueEnum;

use crate::parameters::Parameters;

/// A state to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// The three-phase cycle, several times over
    Burst,
    /// Evictions all the time, calmly
    Steady,
    /// Below the limit: no evictions
    Healthy,
    /// Keys expire faster than the active expire cycle finds them
    Expire,
    /// Keys that have expired and are still held take the server to its limit
    Stale,
    /// One key of millions of fields is evicted in the main thread
    BigKey,
    /// The hash tables of the keys double right below the limit
    Table,
    /// Writes pile up for a replica in its first synchronisation
    Replication,
    /// Messages pile up for subscribers that do not read
    Subscribers,
    /// Two million keys expire at once
    PileUp,
    /// The server forks to save its data while it evicts, and the child shares its core
    Fork,
    /// Busy processes run on the server's core
    Neighbour,
    /// A scenario without and with a remedy
    Remedy,
}

/// A planned run.
pub struct Plan {
    /// The name of the record.
    pub name: String,
    /// The server's configuration and its load.
    pub parameters: Parameters,
    /// Requests a second. By default this is a share of the measured capacity.
    pub rate: Option<f64>,
    /// How long the load lasts at most.
    pub length: Duration,
    /// The number of complete cycles after which the run ends.
    pub cycles: Option<usize>,
    /// Whether keys expire only under load, and what expired keys hold is measured at its end.
    pub measures_expiry: bool,
    /// The executable of the agent that watches it.
    pub agent: Option<PathBuf>,
}

/// Returns the name of a scenario or a remedy on the command line.
pub fn name_of(choice: &impl ValueEnum) -> String {
    let value = choice.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

impl Plan {
    /// Returns the plan of a scenario, watched by `agent`.
    pub fn new(scenario: Scenario, agent: Option<PathBuf>) -> Self {
        Self {
            name: name_of(&scenario),
            parameters: Parameters::of(scenario),
            rate: None,
            length: scenario.length(),
            cycles: scenario.cycles(),
            measures_expiry: scenario == Scenario::Expire,
            agent,
        }
    }
}

impl Scenario {
    /// Returns how long its load lasts at most by default.
    fn length(self) -> Duration {
        Duration::from_secs(match self {
            Self::Burst | Self::Remedy => 240,
            Self::Stale => 90,
            Self::BigKey | Self::Table | Self::Neighbour => 40,
            Self::Expire => 25,
            Self::Steady
            | Self::Healthy
            | Self::Replication
            | Self::Subscribers
            | Self::PileUp
            | Self::Fork => 60,
        })
    }

    /// Returns the number of complete cycles after which it ends by default.
    fn cycles(self) -> Option<usize> {
        match self {
            // What comes later has another cause.
            Self::Stale | Self::Table | Self::Replication => Some(1),
            _ => None,
        }
    }
}
