//! What the profiler shares with its program, an object of its own that is loaded once for all profiles.

use crate::SAVED_REGISTERS;

/// How many profiles can be taken at the same time.
pub const MAX_PROFILES: u32 = 256;

/// Bytes of the smallest page that a kernel has. The stack is copied by as much at once.
pub const STACK_PAGE: usize = 4096;
/// The most pages that are copied, the one with the stack pointer first: at least 32 KiB from there on.
pub const STACK_PAGES: usize = 9;

/// One sample of a main thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProfileSample {
    /// The cookie of the event: which profile it belongs to.
    pub profile: u64,
    /// How many pages of the stack were copied. The end of the stack, or a page that is not in memory, ends the copy.
    pub pages: u64,
    /// When it was taken (`bpf_ktime_get_ns`), nanoseconds.
    pub at_ns: u64,
    /// The registers where the thread's own code was interrupted, in the kernel's order.
    pub registers: [u64; SAVED_REGISTERS],
    /// The stack from the beginning of the page that the stack pointer is in.
    pub stack: [[u8; STACK_PAGE]; STACK_PAGES],
}

/// What is known of one profile that is being taken. Only the program writes it, except for the process id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileCounts {
    /// The process whose main thread is sampled.
    pub tgid: u64,
    pub samples: u64,
    /// Samples for which there was no room.
    pub lost: u64,
    /// Events in another thread than the main thread of the process.
    pub foreign: u64,
    /// The time that the program took for all this, nanoseconds.
    pub spent_ns: u64,
}

/// Returns the entry of a profile among [`MAX_PROFILES`], by the cookie of its event.
#[inline(always)]
pub const fn profile_slot(cookie: u64) -> u32 {
    (cookie % MAX_PROFILES as u64) as u32
}
