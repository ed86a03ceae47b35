//! What is counted of a traced function.

use evictscope_abi::TRACE_BUCKETS;

/// What was counted up to one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCounts {
    /// Hits at the entry, counted or not.
    pub entry_hits: u64,
    /// Calls that began while they were observed.
    pub begun: u64,
    /// Calls that the function made to itself inside a counted one.
    pub nested: u64,
    /// Calls that were not seen to end.
    pub lost: u64,
    /// Slow calls that were not reported.
    pub slow_lost: u64,
    /// Hits where evicting calls and expire cycles begin.
    pub cycle_hits: u64,
    /// The longest call, nanoseconds.
    pub longest_ns: u64,
    /// Sum of all durations, nanoseconds.
    pub sum_ns: u64,
    /// Calls that ended, by the bucket of their duration.
    pub durations: [u64; TRACE_BUCKETS],
    /// Whether there was no room for a thread, so that its calls are missing.
    pub is_crowded: bool,
}

impl TraceCounts {
    /// Nothing.
    pub const NONE: Self = Self {
        entry_hits: 0,
        begun: 0,
        nested: 0,
        lost: 0,
        slow_lost: 0,
        cycle_hits: 0,
        longest_ns: 0,
        sum_ns: 0,
        durations: [0; TRACE_BUCKETS],
        is_crowded: false,
    };

    /// Returns how many calls ended.
    pub fn ended(&self) -> u64 {
        self.durations.iter().sum()
    }
}
