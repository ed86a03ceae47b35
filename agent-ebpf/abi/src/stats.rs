//! What the programs count, one structure per server and per writer.
//!
//! The uprobe programs of one server never run at the same time (eviction calls are made under one
//! lock, or by the main thread alone), so they need no atomics; `main_thread_sample` can interrupt
//! them, so it writes to a structure of its own.

use crate::histogram::{Histogram, bounds};
use crate::recipe::MEMBERS;

/// How an eviction call ended: `EVICT_OK`, `EVICT_RUNNING`, `EVICT_FAIL` of evict.c.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Memory is within the limit.
    Ok = 0,
    /// The call stopped at its time limit; a timer goes on.
    Running = 1,
    /// Nothing could be evicted.
    Fail = 2,
    /// The plan does not know where the result is.
    Unknown = 3,
}

/// What a program could not read or count; the value is the index in the server's fault counters.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A recipe's memory operand could not be read; the call is counted, its variables are not.
    Recipe = 0,
    /// A `server` member could not be read.
    Member = 1,
    /// The allocator's counter could not be read.
    Allocator = 2,
    /// A probe was hit by a process that it was not meant for.
    OtherProcess = 3,
    /// The CPU time of the main thread could not be read.
    CpuTime = 4,
    /// A map has no entry for the server: a defect of the programs.
    Map = 5,
}

impl Fault {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 6] = [
        Self::Recipe,
        Self::Member,
        Self::Allocator,
        Self::OtherProcess,
        Self::CpuTime,
        Self::Map,
    ];
}

/// How often each [`Fault`] of a server happened.
pub type FaultCounts = [u64; Fault::ALL.len()];

/// Invariants that are tested at each evicting call, before its values are counted. After the first
/// failure of any of them nothing more is counted: the plan does not fit this server.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// `mem_reported` from the recipe is within [`ALLOCATOR_SLACK`] of the allocator's counter, read
    /// in the same program run; fails at the last of [`ALLOCATOR_STREAK`] calls at which it is not.
    Allocator = 0,
    /// `mem_tofree = mem_used - maxmemory`, and `mem_used = mem_reported - overhead`.
    Arithmetic = 1,
    /// `maxmemory` from the recipe is the `server` member.
    Maxmemory = 2,
}

/// How far the allocator's counter may move between the server's reading of it and ours, in bytes:
/// other threads of the server allocate and free meanwhile (the background jobs of bio.c, I/O
/// threads), and the main thread may be off the CPU in between. A recipe that reads the wrong
/// register or stack slot is off by far more.
pub const ALLOCATOR_SLACK: u64 = 1 << 20;
/// How many evicting calls in a row have to be further off for the check to fail. One can be, where
/// the main thread is off the CPU while a background job frees a large value; a recipe that is wrong
/// is off at each.
pub const ALLOCATOR_STREAK: u64 = 4;

/// The probes of a traced function, as indices into the hit counters.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// At its entry.
    Enter = 0,
    /// At its return.
    Return = 1,
    /// At the inner site, which only inner calls pass.
    Inner = 2,
    /// At the exits that inner calls pass.
    Exit = 3,
}

impl Probe {
    /// All of them, in the order of their indices.
    pub const ALL: [Self; 4] = [Self::Enter, Self::Return, Self::Inner, Self::Exit];
}

/// What the main thread was doing when it was sampled.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Inside an evicting call.
    Eviction = 0,
    /// Anything else.
    Other = 1,
}

/// A structure that one writer updates while others copy it: torn where `finished` and `begun`
/// differ. `finished` comes first and `begun` last, because the kernel copies upwards: a writer that
/// begins after `finished` was copied shows in `begun`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Updated<T> {
    /// Updates finished.
    pub finished: u64,
    /// What is counted.
    pub value: T,
    /// Updates begun.
    pub begun: u64,
}

impl<T> Updated<T> {
    /// Returns whether no update was under way when this copy was made.
    pub const fn is_whole(&self) -> bool {
        self.finished == self.begun
    }
}

/// The calls of one traced function. An inner call passes the inner site: of eviction calls these are the
/// evicting ones, and the others are no-op calls. Where a function has no inner site, its entry is it.
/// Calls of one function of one server do not overlap, so they need no atomics.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Monotonic time at which the current call entered, nanoseconds; 0 outside, and in a call that
    /// is not to be counted.
    pub entered_ns: u64,
    /// Monotonic time at which the current call passed the inner site, nanoseconds; 0 where none did.
    pub inner_since_ns: u64,
    /// Monotonic time at which the last inner call ended, nanoseconds.
    pub last_inner_ns: u64,
    /// Wall time of inner calls from the inner site on, nanoseconds.
    pub inner: Histogram<{ bounds::DURATION_NS.buckets() }>,
    /// Wall time of the other calls, nanoseconds; only counted while the entry and return probes are
    /// attached.
    pub noop: Histogram<{ bounds::DURATION_NS.buckets() }>,
    /// Inner calls that were not seen to end before the next began.
    pub lost_exits: u64,
    /// Hits, by [`Probe`].
    pub hits: [u64; Probe::ALL.len()],
}

/// What is counted of eviction calls apart from their [`CallStats`], under the same update number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionStats {
    /// Evicting calls, by [`ResultKind`].
    pub evicting_results: [u64; 4],
    /// No-op calls, by [`ResultKind`].
    pub noop_results: [u64; 4],
    /// Monotonic time of the first evicting call after a quiet time ([`crate::QUIET_NS`]), nanoseconds;
    /// 0 where there was none yet.
    pub burst_began_ns: u64,
    /// When the last evicting call before that one had ended: the end of the burst before; 0 where
    /// there was none.
    pub burst_before_ended_ns: u64,
    /// `mem_reported` of the last evicting call that ended, bytes; 0 where it was not known.
    pub last_reported: u64,
    /// The variables of the current evicting call, valid inside of it.
    pub pending: [u64; 4],
    /// Whether `pending` holds each variable.
    pub pending_known: [u64; 4],
    /// At each evicting call, bytes.
    pub mem_tofree: Histogram<{ bounds::MEM_TOFREE.buckets() }>,
    /// At each evicting call, bytes.
    pub mem_reported: Histogram<{ bounds::MEMORY.buckets() }>,
    /// At each evicting call, bytes.
    pub mem_used: Histogram<{ bounds::MEMORY.buckets() }>,
    /// At each evicting call, bytes.
    pub overhead: Histogram<{ bounds::OVERHEAD.buckets() }>,
    /// Tests made, by [`Check`].
    pub checks: [u64; 3],
    /// Tests that failed, by [`Check`]; where one is not 0, no call is counted any more.
    pub check_failures: [u64; 3],
    /// Evicting calls at which the allocator's counter was not exactly `mem_reported` any more. Those
    /// at which it was further off than [`ALLOCATOR_SLACK`] are counted nowhere else.
    pub allocator_moved: u64,
    /// Of the last evicting calls, how many in a row were further off than [`ALLOCATOR_SLACK`].
    pub allocator_far: u64,
    /// The registers at the goal site, by their x86-64 number: scratch space of the program.
    pub registers: [u64; 16],
}

/// The members as they were read together.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberValues {
    /// Monotonic time of reading, nanoseconds; 0 where they were never read.
    pub read_ns: u64,
    /// Bit i is set where `values[i]` was read.
    pub known: u64,
    /// By `Member`.
    pub values: [u64; MEMBERS],
    /// The allocator's counter, bytes.
    pub used_memory: u64,
    /// 1 where `used_memory` was read.
    pub used_memory_known: u64,
}

/// Counted by `main_thread_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleStats {
    /// CPU time of the main thread by [`Activity`], nanoseconds.
    pub cpu_ns: [u64; 2],
    /// The event's counter (nanoseconds on CPU) at the last sample.
    pub counter_ns: u64,
    /// Samples taken.
    pub hits: u64,
    /// Last reading.
    pub members: MemberValues,
    /// Total client buffers at each sample, 10 a second at most, bytes.
    pub client_buffers: Histogram<{ bounds::CLIENT_BUFFERS.buckets() }>,
    /// Monotonic time of the last entry in `client_buffers`, nanoseconds.
    pub client_buffers_ns: u64,
    /// Highest total of client buffers, bytes.
    pub client_buffers_peak: u64,
    /// The lowest that the allocator's counter was at a sample since an evicting call, bytes. Between two
    /// rounds of the server's event loop memory is low for moments only, which snapshots miss.
    pub lowest_memory: u64,
    /// When that call ended; 0 where `lowest_memory` is not known.
    pub lowest_since_ns: u64,
}
