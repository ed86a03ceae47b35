//! What `evictscope trace` shares with its own programs. They are an object of their own, which the daemon never loads.

use crate::histogram::Histogram;

/// How many buckets there are for each doubling of a duration, as an exponent of 2: a bound is at most a quarter above
/// the one before.
const PARTS: u32 = 2;
/// The exponent of the duration, in nanoseconds, below which all are in the first bucket.
const FIRST: u32 = 6;
/// The exponent of the duration from which on all are in the last bucket: 69 s.
const LAST: u32 = 36;

/// How many buckets the durations of traced calls have.
pub const TRACE_BUCKETS: usize = (((LAST - FIRST) << PARTS) + 2) as usize;

/// Returns the bucket of a duration in nanoseconds: the first one whose bound is above it.
#[inline(always)]
pub const fn trace_bucket(ns: u64) -> usize {
    if ns < 1 << FIRST {
        return 0;
    }
    if ns >= 1 << LAST {
        return TRACE_BUCKETS - 1;
    }
    let exponent = 63 - ns.leading_zeros();
    let part = (ns >> (exponent - PARTS)) as u32 & ((1 << PARTS) - 1);
    (1 + ((exponent - FIRST) << PARTS) + part) as usize
}

/// Returns the bound of a bucket in nanoseconds, above all that is counted in it; `None` for the last one, which has
/// none.
pub const fn trace_bound(bucket: usize) -> Option<u64> {
    if bucket + 1 >= TRACE_BUCKETS {
        return None;
    }
    let (exponent, part) = (FIRST + (bucket as u32 >> PARTS), bucket as u64 & ((1 << PARTS) - 1));
    Some((1 << exponent) + (part << (exponent - PARTS)))
}

/// How many kinds of work inside a traced call are told apart. Each has the number of its function in
/// [`TracedCall::ran`].
pub const TRACE_CYCLES: usize = crate::MAX_FUNCTIONS as usize;

/// How many threads of a server can be traced: 128 for connections, and some for the background.
pub const TRACE_THREADS: u32 = 512;

/// What the programs are told.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceConfig {
    pub tgid: u32,
    /// Whether calls that begin now are counted.
    pub is_observed: u32,
    /// Counts the times that the probes were placed: what is known of calls that began before means nothing.
    pub generation: u64,
    /// Calls that take longer are reported one by one, nanoseconds; `u64::MAX` if none are.
    pub slower_ns: u64,
    /// Address of `server.stat_evictedkeys`, which shows an eviction inside a call; 0 if it is not known. Reading it
    /// costs the server less than a probe at each evicting call.
    pub evicted_keys: u64,
}

/// What is known of one thread: the call that it is in, and what was counted of its calls. Only programs that run in it
/// write it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedThread {
    /// Monotonic time at which the call under way began, nanoseconds; 0 outside. If the function calls itself,
    /// this is the outermost call.
    pub since_ns: u64,
    /// The stack pointer then.
    pub stack_pointer: u64,
    /// [`TraceConfig::generation`] then.
    pub generation: u64,
    /// [`TraceShared::cycles`] then; for the eviction call, evicted keys if they can be read.
    pub cycles: [u64; TRACE_CYCLES],
    pub calls: TraceCalls,
}

/// What was counted of the traced calls of a thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCalls {
    /// Hits at the entry, counted or not.
    pub entry_hits: u64,
    /// Calls that began while they were observed.
    pub begun: u64,
    /// Calls that the function made to itself inside a counted one.
    pub nested: u64,
    /// Calls not seen to return before the thread called the function again from where that was possible only after
    /// them.
    pub lost: u64,
    /// Slow calls that were not reported, because the reader did not keep up.
    pub slow_lost: u64,
    pub longest_ns: u64,
    /// Calls that ended, by [`trace_bucket`] of their duration in nanoseconds.
    pub durations: Histogram<TRACE_BUCKETS>,
}

/// What the programs keep for all threads together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceShared {
    /// Cycles begun in the main thread, by number of the traced function.
    pub cycles: [u64; TRACE_CYCLES],
    /// Hits where a cycle may begin.
    pub cycle_hits: u64,
    /// Not 0 if a thread made calls for which there was no room. Several threads may write it at once.
    pub crowded: u64,
    /// What a thread begins with. Nothing writes to it.
    pub new_thread: TracedThread,
}

/// A call that took longer than [`TraceConfig::slower_ns`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracedCall {
    /// Monotonic time at which it ended, nanoseconds.
    pub ended_ns: u64,
    pub duration_ns: u64,
    pub tid: u32,
    /// What began inside it: a bit for each number of a traced function.
    pub ran: u32,
}

#[cfg(test)]
mod tests {
    use super::{TRACE_BUCKETS, trace_bound, trace_bucket};

    #[test]
    fn a_duration_is_below_the_bound_of_its_bucket_and_not_below_the_one_before() {
        for bucket in 0..TRACE_BUCKETS - 1 {
            let bound = trace_bound(bucket).unwrap_or(0);
            assert_eq!(trace_bucket(bound - 1), bucket, "below {bound}");
            assert_eq!(trace_bucket(bound), bucket + 1, "{bound}");
        }
        assert_eq!((trace_bucket(0), trace_bucket(u64::MAX)), (0, TRACE_BUCKETS - 1));
        assert_eq!(trace_bound(TRACE_BUCKETS - 1), None);
    }

    #[test]
    fn a_bound_is_at_most_a_quarter_above_the_one_before() {
        for bucket in 1..TRACE_BUCKETS - 1 {
            let (low, high) = (trace_bound(bucket - 1), trace_bound(bucket));
            let (low, high) = (low.unwrap_or(0), high.unwrap_or(u64::MAX));
            assert!(low < high && 4 * high <= 5 * low, "{low} {high}");
        }
    }
}
