//! The states of a server that are measured, and one measurement.

/// A state of the server.
pub struct Condition {
    /// Its name in the tables.
    pub name: &'static str,
    /// The server's limit.
    pub maxmemory: &'static str,
    /// The keys of the load, which writes random ones of them.
    pub keys: u32,
    /// The divisor of the requests that were asked for.
    pub part: u32,
    /// Whether about every command must evict.
    pub evicts: bool,
}

/// All of them.
pub const CONDITIONS: [Condition; 2] = [
    // All the keys take a fiftieth of the limit.
    Condition {
        name: "healthy",
        maxmemory: "1gb",
        keys: 100_000,
        part: 1,
        evicts: false,
    },
    // The limit is reached with about a tenth of the keys: nine of ten writes make a new one.
    Condition {
        name: "evicting",
        maxmemory: "64mb",
        keys: 3_000_000,
        part: 2,
        evicts: true,
    },
];

/// One measurement.
#[derive(Clone, Copy)]
pub struct Measurement {
    /// Commands a second, as the client saw it.
    pub rate: f64,
    /// CPU time of the server's main thread for one command, in nanoseconds.
    pub cpu: f64,
    /// The share of the commands that made an evicting call, where these were counted.
    pub evicting_share: Option<f64>,
}
