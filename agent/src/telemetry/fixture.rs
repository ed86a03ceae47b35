//! Snapshots for tests.

use evictscope_abi::{CallStats, EvictionStats, Histogram, MemberValues, SampleStats};

use super::Snapshot;

/// Members that were never read.
pub const UNREAD: MemberValues = MemberValues {
    read_ns: 0,
    known: 0,
    values: [0; evictscope_abi::MEMBERS],
    used_memory: 0,
    used_memory_known: 0,
};

/// A snapshot of a server that was just attached.
pub fn empty_snapshot() -> Snapshot {
    const NO_CALLS: CallStats = CallStats {
        duration: Histogram::ZERO,
        results: [0; 4],
    };
    Snapshot {
        evictions: EvictionStats {
            finished: 0,
            entered_ns: 0,
            evicting_since_ns: 0,
            last_evicting_ns: 0,
            burst_began_ns: 0,
            burst_before_ended_ns: 0,
            last_reported: 0,
            pending: [0; 4],
            pending_known: [0; 4],
            evicting: NO_CALLS,
            noop: NO_CALLS,
            mem_tofree: Histogram::ZERO,
            mem_reported: Histogram::ZERO,
            mem_used: Histogram::ZERO,
            overhead: Histogram::ZERO,
            hits: [0; 4],
            faults: [0; 4],
            checks: [0; 3],
            check_failures: [0; 3],
            allocator_moved: 0,
            allocator_far: 0,
            registers: [0; 16],
            begun: 0,
        },
        samples: SampleStats {
            finished: 0,
            cpu_ns: [0; 2],
            counter_ns: 0,
            hits: 0,
            faults: [0; 4],
            members: UNREAD,
            client_buffers: Histogram::ZERO,
            client_buffers_ns: 0,
            client_buffers_peak: 0,
            lowest_memory: 0,
            lowest_since_ns: 0,
            begun: 0,
        },
        idle_members: None,
    }
}
