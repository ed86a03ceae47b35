//! The plan of a run.

use std::time::Duration;

use evictscope_testkit::agent::Program;

use crate::scenario::{Parameters, Scenario, name_of};

/// A run to be made.
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
    /// The agent that watches it.
    pub agent: Option<Program>,
}

impl Plan {
    /// Returns the plan of a scenario, watched by `agent`.
    pub fn new(scenario: Scenario, agent: Option<Program>) -> Self {
        Self {
            name: name_of(&scenario),
            parameters: scenario.parameters(),
            rate: None,
            length: Duration::from_secs(scenario.seconds()),
            cycles: None,
            agent,
        }
    }
}
