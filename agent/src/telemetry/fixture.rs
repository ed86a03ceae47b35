//! Snapshots for tests.

use evictscope_abi::{CallStats, EvictionStats, Fault, Histogram, MemberValues, SampleStats};

use super::Snapshot;

/// Members that were never read.
pub const UNREAD: MemberValues = MemberValues {
    read_ns: 0,
    known: 0,
    values: [0; evictscope_abi::MEMBERS],
    used_memory: 0,
    used_memory_known: 0,
};

/// Returns a snapshot of a server that was just attached.
pub fn empty_snapshot() -> Snapshot {
    Snapshot {
        calls: vec![CallStats {
            entered_ns: 0,
            inner_since_ns: 0,
            last_inner_ns: 0,
            inner: Histogram::ZERO,
            noop: Histogram::ZERO,
            lost_exits: 0,
            hits: [0; 4],
        }],
        evictions: EvictionStats {
            evicting_results: [0; 4],
            noop_results: [0; 4],
            burst_began_ns: 0,
            burst_before_ended_ns: 0,
            last_reported: 0,
            pending: [0; 4],
            pending_known: [0; 4],
            mem_tofree: Histogram::ZERO,
            mem_reported: Histogram::ZERO,
            mem_used: Histogram::ZERO,
            overhead: Histogram::ZERO,
            checks: [0; 3],
            check_failures: [0; 3],
            allocator_moved: 0,
            allocator_far: 0,
            registers: [0; 16],
        },
        samples: SampleStats {
            cpu_ns: [0; 2],
            counter_ns: 0,
            hits: 0,
            members: UNREAD,
            client_buffers: Histogram::ZERO,
            client_buffers_ns: 0,
            client_buffers_peak: 0,
            lowest_memory: 0,
            lowest_since_ns: 0,
        },
        faults: [0; Fault::ALL.len()],
        idle_members: None,
    }
}
