//! The generator's counts, as the record has them.

use serde::Serialize;

/// Counts since the generator connected.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Totals {
    /// Requests that fell due.
    pub due: u64,
    /// Requests handed to a connection's socket.
    pub sent: u64,
    /// Replies.
    pub answered: u64,
    /// Replies that were errors.
    pub errors: u64,
    /// Bytes of replies.
    pub bytes_received: u64,
}

impl Totals {
    /// Returns the backlog: requests that are due and not answered, sent or not.
    pub fn backlog(&self) -> u64 {
        self.due - self.answered
    }

    /// Returns how many requests are due and not sent.
    pub fn waiting(&self) -> u64 {
        self.due - self.sent
    }
}

/// The counts at one time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Load {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The counts.
    #[serde(flatten)]
    pub totals: Totals,
    /// Requests due and not answered.
    pub backlog: u64,
    /// The highest backlog since the line before.
    pub backlog_peak: u64,
}

/// A second of the generator. Latencies are in seconds, from when a request was due to its reply.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Second {
    /// Its end, in seconds since 1970.
    pub at: f64,
    /// Requests that fell due.
    pub due_per_second: f64,
    /// Replies.
    pub answered_per_second: f64,
    /// Replies that were errors.
    pub errors_per_second: f64,
    /// Bytes of replies.
    pub bytes_per_second: f64,
    /// Of the replies of this second.
    pub latency_p50: f64,
    /// Of the replies of this second.
    pub latency_p90: f64,
    /// Of the replies of this second.
    pub latency_p99: f64,
    /// Of the replies of this second.
    pub latency_max: f64,
    /// Requests due and not answered, at the end.
    pub backlog: u64,
    /// The highest backlog within.
    pub backlog_peak: u64,
    /// Requests due and not sent, at the end.
    pub waiting: u64,
    /// CPU time of the generator's thread, in cores: near 1, the load is not what it claims to be.
    pub generator_cpu: f64,
}
