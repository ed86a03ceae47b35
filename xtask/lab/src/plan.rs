//! What a run is to be.

use std::time::Duration;

use evictscope_testkit::agent::Program;

use crate::scenario::{Parameters, Scenario};

/// What is to be run.
pub struct Plan {
    /// The name of the record.
    pub name: String,
    /// What is asked of the server.
    pub parameters: Parameters,
    /// Requests a second, where they are not to be a share of the measured capacity.
    pub rate: Option<f64>,
    /// How long the load lasts at most.
    pub length: Duration,
    /// How many complete cycles are enough.
    pub cycles: Option<usize>,
    /// The agent that is to watch it.
    pub agent: Option<Program>,
}

impl Plan {
    /// Returns the plan of a scenario, watched by `agent`.
    pub fn new(scenario: Scenario, agent: Option<Program>) -> Self {
        Self {
            name: scenario.name().to_owned(),
            parameters: scenario.parameters(),
            rate: None,
            length: Duration::from_secs(scenario.seconds()),
            cycles: None,
            agent,
        }
    }
}
