//! What the programs count for each server.
//!
//! The programs of one server never run at the same time (eviction calls are made under one lock, or by
//! the main thread alone), so they need no atomics.

use crate::config::Words;
use crate::histogram::{Histogram, bounds};

/// How an eviction call ended: `EVICT_OK`, `EVICT_RUNNING`, `EVICT_FAIL` of evict.c, or before 6.2 `C_OK`,
/// `C_ERR`.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultKind {
    /// Memory is within the limit.
    Ok = 0,
    /// The call stopped at its time limit; a timer continues it.
    Running = 1,
    /// Nothing could be evicted.
    Fail = 2,
    /// The plan does not know where the result is.
    Unknown = 3,
}

impl ResultKind {
    /// What `freeMemoryIfNeeded()` returns if it fails, before 6.2 (server.h). No other version returns it from an
    /// eviction call.
    const C_ERR: u32 = u32::MAX;

    /// Returns how a call that returned this number ended.
    #[inline(always)]
    pub const fn of(returned: u32) -> Self {
        match returned {
            0 => Self::Ok,
            1 => Self::Running,
            2 | Self::C_ERR => Self::Fail,
            _ => Self::Unknown,
        }
    }
}

/// What a program could not read or count; the value is the index in the server's fault counters.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Server memory that a recipe or a place needs could not be read; the call is counted, its values are not.
    Recipe = 0,
    /// `server.maxmemory` could not be read.
    Member = 1,
    /// The allocator's counter could not be read.
    Allocator = 2,
    /// A probe was hit by a process that it was not meant for.
    OtherProcess = 3,
    /// A map has no entry for the server: a defect of the programs.
    Map = 4,
}

impl Fault {
    pub const ALL: [Self; 5] = [Self::Recipe, Self::Member, Self::Allocator, Self::OtherProcess, Self::Map];
}

/// How often each [`Fault`] of a server happened.
pub type FaultCounts = [u64; Fault::ALL.len()];

/// Invariants that are tested at evicting calls, before their values are counted. After the first
/// failure of any of them nothing more is counted: the plan does not fit this server. [`Check::Arithmetic`]
/// is tested at each call, the others at [`CHECKED_FIRST`] calls of a burst and then at one in
/// [`CHECKED_ONE_IN`].
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// `mem_reported` from the recipe is within [`ALLOCATOR_SLACK`] of the allocator's counter, read in the same
    /// program run; fails at the last of [`ALLOCATOR_STREAK`] calls in a row at which it is not.
    Allocator = 0,
    /// `mem_tofree = mem_used - maxmemory`, and `mem_used = mem_reported - overhead`.
    Arithmetic = 1,
    /// `maxmemory` from the recipe equals the `server` member.
    Maxmemory = 2,
}

/// How far the allocator's counter may move between the server's reading of it and ours, in bytes:
/// other threads of the server allocate and free meanwhile (the background jobs of bio.c, I/O
/// threads), and the main thread may be off the CPU in between. A recipe that reads the wrong
/// register or stack slot is off by far more.
pub const ALLOCATOR_SLACK: u64 = 1 << 20;
/// How many evicting calls in a row have to be further off for the check to fail. One can be, if the main thread is off
/// the CPU while a background job frees a large value; a wrong recipe is off at each.
pub const ALLOCATOR_STREAK: u64 = 4;

/// How many evicting calls at the beginning of a burst are compared with the server's own memory. Reading that costs
/// the server some 120 ns each time, twice as long as all else that the program does. A wrong recipe is wrong at
/// each call, unless the server's code has several ways to the goal site. What decides between them can change with
/// each burst, so each begins with these calls.
pub const CHECKED_FIRST: u64 = 64;
/// Of the other calls of a burst, one in this many is compared: a saturated server makes hundreds a second and more. It
/// is a prime, because clients send commands in batches of even sizes, and each call of a batch must have its turn.
pub const CHECKED_ONE_IN: u64 = 17;

/// The probes of a traced function, as indices into the hit counters.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    Enter = 0,
    Return = 1,
    /// At the inner site, which only inner calls pass.
    Inner = 2,
    /// At the exits that inner calls pass.
    Exit = 3,
}

impl Probe {
    pub const ALL: [Self; 4] = [Self::Enter, Self::Return, Self::Inner, Self::Exit];
}

/// A structure that one writer updates while others copy it, under a sequence lock. The writer raises `begun`, writes,
/// and then sets `finished` to `begun`, and others see that in this order. A copy is whole if `begun`, read after it,
/// equals `finished`, read before it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Updated<T> {
    pub finished: u64,
    pub value: T,
    pub begun: u64,
}

/// For how many windows of time the longest inner call is kept. The agent reads them ten times a second, so it takes in
/// each of them unless it is held up for this many windows.
pub const LONGEST_WINDOWS: usize = 8;

/// The longest inner call that ended in a window of time, without its waits for a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    pub window: u64,
    /// How long the call took without these, nanoseconds.
    pub duration_ns: u64,
}

impl Longest {
    /// The exponent of a window's length in nanoseconds: 2^30, a little more than a second.
    const WINDOW: u32 = 30;
    pub const WINDOW_NS: u64 = 1 << Self::WINDOW;

    /// Returns the number of the window that contains a monotonic time, nanoseconds.
    #[inline(always)]
    pub const fn window(at_ns: u64) -> u64 {
        at_ns >> Self::WINDOW
    }

    /// Returns the place in [`CallStats::longest`] of the window with this number.
    #[inline(always)]
    pub const fn place(window: u64) -> usize {
        window as usize % LONGEST_WINDOWS
    }
}

/// The calls of one traced function. An inner call passes the inner site: of eviction calls, these are the evicting
/// ones, and the others are no-op calls. If a function has no inner site, its entry serves as one. Calls of one
/// function of one server do not overlap, so they need no atomics.
///
/// Durations of expire cycles are in [`ExpireStats`], by type, and in no histogram here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallStats {
    /// Monotonic time at which the current call entered, nanoseconds; 0 outside, and in a call that is not counted.
    pub entered_ns: u64,
    /// Monotonic time at which the current call passed the inner site, nanoseconds; 0 if none did.
    pub inner_since_ns: u64,
    /// For how long the thread had waited for a CPU by then, since it began, nanoseconds.
    pub inner_waited_ns: u64,
    /// Monotonic time at which the last inner call ended, nanoseconds.
    pub last_inner_ns: u64,
    /// Time in inner calls in which the thread waited for a CPU, nanoseconds; 0 if the kernel does not tell.
    pub cpu_wait_ns: u64,
    /// Wall time of inner calls from the inner site on, nanoseconds.
    pub inner: Histogram<{ bounds::INNER_NS.buckets() }>,
    /// The longest recent inner calls, each at [`Longest::place`] of its window.
    pub longest: [Longest; LONGEST_WINDOWS],
    /// Wall time of the other calls, nanoseconds; only counted while the entry and return probes are
    /// attached.
    pub noop: Histogram<{ bounds::NOOP_NS.buckets() }>,
    /// Inner calls that were not seen to end before the next began.
    pub lost_exits: u64,
    /// Hits, by [`Probe`].
    pub hits: [u64; Probe::ALL.len()],
}

/// A value that may not be known.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// The value; 0 if it is not known.
    pub value: u64,
    /// 1 if it is known, 0 if it is not.
    pub is_known: u64,
}

impl Noted {
    pub const fn get(self) -> Option<u64> {
        match self.is_known {
            0 => None,
            _ => Some(self.value),
        }
    }
}

/// What is kept of an evicting call's variables, bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// [`Variable::MemReported`](crate::Variable::MemReported).
    pub reported: Noted,
    /// [`Variable::Overhead`](crate::Variable::Overhead).
    pub overhead: Noted,
    /// [`Variable::MemTofree`](crate::Variable::MemTofree).
    pub tofree: Noted,
}

/// How many banks of slow calls there are: one for the window of time that is under way, and one for the window before
/// it.
pub const SLOW_BANKS: usize = 2;
/// How many slow calls of one window are kept.
pub const SLOW_SLOTS: usize = 32;

/// An evicting call that has ended: in a window of time, the longest of those whose number falls into one slot. So the
/// longest of each window is kept, and all calls of a window that has no more calls than slots.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowEviction {
    /// Monotonic time of its end, nanoseconds; 0 if there was no call.
    pub ended_ns: u64,
    /// Its wall time less the time in which it waited for a CPU, nanoseconds.
    pub duration_ns: u64,
    /// Its goal, bytes.
    pub tofree: Noted,
    /// How it ended, as a [`ResultKind`].
    pub result: u64,
}

impl SlowEviction {
    /// The exponent of a window's length in nanoseconds: 2^27, a little more than the tenth of a second after which the
    /// agent reads again. A window is kept until the next one is over, so the agent takes in each window whole.
    const WINDOW: u32 = 27;
    pub const WINDOW_NS: u64 = 1 << Self::WINDOW;

    /// Returns the number of the window that contains a monotonic time, nanoseconds.
    #[inline(always)]
    pub const fn window(at_ns: u64) -> u64 {
        at_ns >> Self::WINDOW
    }

    /// Returns the bank of the window that contains a monotonic time, nanoseconds.
    #[inline(always)]
    pub const fn bank(at_ns: u64) -> usize {
        Self::window(at_ns) as usize % SLOW_BANKS
    }

    /// Returns whether this replaces another call that has the same slot.
    #[inline(always)]
    pub const fn replaces(&self, other: &Self) -> bool {
        Self::window(self.ended_ns) != Self::window(other.ended_ns) || self.duration_ns > other.duration_ns
    }
}

/// What is counted of eviction calls apart from their [`CallStats`], under the same update number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionStats {
    /// Evicting calls, by [`ResultKind`].
    pub evicting_results: [u64; 4],
    /// No-op calls, by [`ResultKind`].
    pub noop_results: [u64; 4],
    /// Monotonic time of the first evicting call after a quiet time ([`crate::QUIET_NS`]), nanoseconds; 0 if there was
    /// none yet.
    pub burst_began_ns: u64,
    /// When the last evicting call before that one had ended: the end of the previous burst; 0 if there was none.
    pub burst_before_ended_ns: u64,
    /// The variables of the current evicting call, valid inside it.
    pub pending: Goal,
    /// The variables of the last evicting call that ended.
    pub last: Goal,
    /// At each evicting call, bytes.
    pub mem_tofree: Histogram<{ bounds::MEM_TOFREE.buckets() }>,
    /// Tests made, by [`Check`].
    pub checks: [u64; 3],
    /// Tests that failed, by [`Check`]; if one is not 0, calls are no longer counted.
    pub check_failures: [u64; 3],
    /// How many of the last compared evicting calls, in a row, were further off than [`ALLOCATOR_SLACK`]; if this is
    /// not 0, the next call is compared too.
    pub allocator_far: u64,
    /// How many calls of this burst must still be compared with the server's memory one by one.
    pub first_left: u64,
    /// How many calls are not compared before the next one that is.
    pub skipped_left: u64,
    /// The number of the next evicting call to end.
    pub number: u64,
    /// The slowest recent evicting calls, by [`SlowEviction::bank`], and by number modulo [`SLOW_SLOTS`].
    pub slow: [[SlowEviction; SLOW_SLOTS]; SLOW_BANKS],
    /// The registers at the probe site, and what was read for the recipes: scratch space of the program.
    pub words: Words,
}

/// The type of an expire cycle: the `int type` that `activeExpireCycle()` gets (server.h). Since Valkey 9, a cycle is
/// two jobs, each of which counts as one: the job for keys has the type of the cycle, the job for fields of hashes has
/// another.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleType {
    /// `ACTIVE_EXPIRE_CYCLE_SLOW`: the cron makes it, `hz` times a second.
    Slow = 0,
    /// `ACTIVE_EXPIRE_CYCLE_FAST`: made before the event loop sleeps, while many keys have expired.
    Fast = 1,
    /// The plan does not know where the type is.
    Unknown = 2,
    /// The job for fields of hashes of a slow cycle.
    SlowFields = 3,
    /// The same job of a fast cycle.
    FastFields = 4,
}

impl CycleType {
    pub const ALL: [Self; 5] = [Self::Slow, Self::Fast, Self::Unknown, Self::SlowFields, Self::FastFields];
    pub const OF_KEYS: [Self; 3] = [Self::Slow, Self::Fast, Self::Unknown];
}

/// What is counted of the expire cycles of one type that have ended.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleStats {
    /// Wall time after the early returns, nanoseconds.
    pub duration: Histogram<{ bounds::CYCLE_NS.buckets() }>,
    /// Keys with a time to live that they looked at.
    pub sampled: u64,
    /// Sampled keys that had expired, which they deleted.
    pub expired: u64,
}

/// Invariants that are tested at each expire cycle, before it is counted. After the first failure of any of them,
/// cycles are no longer counted: the plan does not fit this server.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleCheck {
    /// The type is 0 or 1, and so is the job.
    Type = 0,
    /// No more keys had expired than were sampled.
    Keys = 1,
}

/// What is counted of expire cycles apart from their [`CallStats`], under the same update number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpireStats {
    /// The cycles that have ended, by [`CycleType`].
    pub cycles: [CycleStats; CycleType::ALL.len()],
    /// The [`CycleType`] of the cycle under way, valid inside it.
    pub under_way: u64,
    /// How many keys had expired before it, if its end counts those, too.
    pub expired_before: u64,
    /// Tests that failed, by [`CycleCheck`]; if one is not 0, cycles are no longer counted.
    pub check_failures: [u64; 2],
    /// The registers at the probe site: scratch space of the program.
    pub words: Words,
}

#[cfg(test)]
mod tests {
    use super::ResultKind;

    #[test]
    fn both_kinds_of_results_are_known() {
        let of = |returned: i32| ResultKind::of(returned.cast_unsigned());
        assert_eq!([0, 1, 2].map(of), [ResultKind::Ok, ResultKind::Running, ResultKind::Fail]);
        assert_eq!(of(-1), ResultKind::Fail);
        assert_eq!([3, -2].map(of), [ResultKind::Unknown; 2]);
    }
}
