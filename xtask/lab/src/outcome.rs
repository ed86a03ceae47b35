//! What a record shows in the end.

use serde::Serialize;

use crate::{cycles::Cycle, own_core::DISTURBED, swelling::Swelling};

/// What the record shows, from the beginning of the load to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// When the load ended, in seconds since 1970.
    pub at: f64,
    /// Whether the run was ended by the user.
    pub interrupted: bool,
    /// Seconds of load.
    pub seconds: f64,
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// The highest backlog.
    pub backlog_peak: u64,
    /// The longest latency, in seconds.
    pub latency_max: f64,
    /// The highest `mem_clients_normal`, in bytes.
    pub client_buffers_peak: u64,
    /// Keys evicted.
    pub evicted_keys: u64,
    /// The greatest share of a second that the generator's thread was busy.
    pub generator_cpu_max: f64,
    /// The greatest share of a second that the server's main thread waited for its core.
    pub server_wait_max: f64,
    /// Every burst, complete or not.
    pub cycles: Vec<Cycle>,
    /// For `stall`: how client buffers swelled.
    pub swelling: Option<Swelling>,
}

impl Outcome {
    /// Whether something else ran on the server's core, so that the run is no evidence.
    pub fn was_disturbed(&self) -> bool {
        self.server_wait_max > DISTURBED
    }
}
