//! The BPF programs of `evictscope trace`, which time the calls of one function that a user names. They are an object
//! of their own with their own maps, which the daemon does not load.
//!
//! Any thread of the server may make such a call, and calls can be nested. So what is known of the call under way is
//! kept by thread, and the outermost call is the one that is counted. It is identified by the stack pointer: the entry
//! of a nested call finds a lower one, and only the outermost call's own return finds the one that its entry saw,
//! without the return address.
//!
//! A call that is left by a `longjmp` has no return. It is noticed, and counted as lost, at the next call that the
//! thread makes from the same level of the stack or from above. Until then it is taken to go on: calls that the thread
//! makes from deeper in the stack are taken for nested calls, and not counted.
#![no_std]
#![no_main]
#![allow(missing_docs, reason = "the macros of aya-ebpf make public items without docs")]

#[allow(dead_code, reason = "the daemon's programs evaluate more than this one does")]
mod evaluate;
mod kernel;
mod registers;
mod stack;

use core::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::macros::{map, uprobe, uretprobe};
use aya_ebpf::maps::{Array, HashMap, RingBuf};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evaluate::{Known, SiteWords, is_within_limit, read_user, read_words, recipe};
use evictscope_abi::{
    Cookie, EVICTION, EvictionConfig, TRACE_CYCLES, TRACE_THREADS, TraceConfig, TraceShared, TracedCall, TracedThread,
    Variable, trace_bucket,
};
use kernel::now;

/// Room for slow calls until they are read, in bytes: some 8,000 calls.
const RING_BYTES: u32 = 1 << 18;
/// `BPF_RB_NO_WAKEUP`: the reader polls.
const NO_WAKEUP: u64 = 1;

/// One entry: what the programs are told.
#[map]
static TRACE_CONFIG: Array<TraceConfig> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// One entry: what is kept for all threads together.
#[map]
static TRACE_SHARED: Array<TraceShared> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// One entry: how the memory at the goal site is computed. Only reads and recipes are used.
#[map]
static TRACE_EVICTION: Array<EvictionConfig> = Array::with_max_entries(1, BPF_F_MMAPABLE);

/// Scratch space of the program at the goal site, which only the main thread passes.
#[map]
static TRACE_WORDS: Array<SiteWords> = Array::with_max_entries(1, 0);

/// By thread id.
#[map]
static THREADS: HashMap<u32, TracedThread> = HashMap::with_max_entries(TRACE_THREADS, 0);

/// The slow calls.
#[map]
static SLOW_CALLS: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// At the entry of the function.
#[uprobe]
pub fn trace_enter(ctx: ProbeContext) -> u32 {
    let _ = try_enter(&ctx);
    0
}

/// At its return.
#[uretprobe]
pub fn trace_return(ctx: RetProbeContext) -> u32 {
    let _ = try_return(&ctx);
    0
}

/// At the goal site of the eviction call.
#[uprobe]
pub fn trace_eviction(ctx: ProbeContext) -> u32 {
    stack::stay(&ctx);
    let _ = try_eviction(&ctx);
    0
}

/// Where an expire cycle begins.
#[uprobe]
pub fn trace_cycle(ctx: ProbeContext) -> u32 {
    let _ = try_cycle(&ctx);
    0
}

/// What a program works on.
struct Hit {
    config: &'static TraceConfig,
    shared: *mut TraceShared,
    tid: u32,
    is_main: bool,
}

impl Hit {
    /// Finds it; `None` if the process is not the traced one. The kernel's own filter has been wrong for return probes.
    #[inline(always)]
    fn find() -> Option<Self> {
        let config = TRACE_CONFIG.get(0)?;
        let shared = TRACE_SHARED.get_ptr_mut(0)?;
        let id = bpf_get_current_pid_tgid();
        let (tgid, tid) = ((id >> 32) as u32, id as u32);
        (config.tgid == tgid).then_some(Self { config, shared, tid, is_main: tid == tgid })
    }

    #[inline(always)]
    fn is_observed(&self) -> bool {
        // SAFETY: a field of a valid entry, which may be written at any time.
        unsafe { read_volatile(addr_of!(self.config.is_observed)) != 0 }
    }

    #[inline(always)]
    fn generation(&self) -> u64 {
        // SAFETY: as above.
        unsafe { read_volatile(addr_of!(self.config.generation)) }
    }

    /// Returns what changes when a cycle runs: how many have begun, or how many keys were evicted. `number` is below
    /// [`TRACE_CYCLES`].
    #[inline(always)]
    fn cycles(&self, number: usize) -> u64 {
        if number == EVICTION as usize && self.config.evicted_keys != 0 {
            return read_user(self.config.evicted_keys).unwrap_or(0);
        }
        // SAFETY: as above.
        unsafe { read_volatile(addr_of!((*self.shared).cycles[number])) }
    }

    /// Counts a hit where a cycle may begin. It is in the main thread, unless the kernel has a defect.
    #[inline(always)]
    fn shared_hit(&self) {
        // SAFETY: a field of a valid entry.
        unsafe {
            let hits = addr_of_mut!((*self.shared).cycle_hits);
            write_volatile(hits, read_volatile(hits).wrapping_add(1));
        }
    }

    /// Counts a cycle that begins in the main thread; `number` is below [`TRACE_CYCLES`].
    #[inline(always)]
    fn begin_cycle(&self, number: usize) {
        // SAFETY: within the array of a valid entry, which only the main thread writes.
        unsafe {
            let cycles = addr_of_mut!((*self.shared).cycles[number]);
            write_volatile(cycles, read_volatile(cycles).wrapping_add(1));
        }
    }

    /// Returns what is known of this thread, which is nothing at first.
    #[inline(always)]
    fn thread(&self) -> Option<&'static mut TracedThread> {
        let known = match THREADS.get_ptr_mut(self.tid) {
            Some(known) => Some(known),
            None => {
                // SAFETY: a valid entry, of which this part is never written.
                let new = unsafe { &*addr_of!((*self.shared).new_thread) };
                let _ = THREADS.insert(self.tid, new, 0);
                THREADS.get_ptr_mut(self.tid)
            }
        };
        match known {
            // SAFETY: a valid entry, which only this thread uses.
            Some(known) => Some(unsafe { &mut *known }),
            None => {
                // SAFETY: a field of a valid entry.
                unsafe { write_volatile(addr_of_mut!((*self.shared).crowded), 1) };
                None
            }
        }
    }
}

#[inline(always)]
fn try_enter(ctx: &ProbeContext) -> Option<()> {
    let hit = Hit::find()?;
    let thread = hit.thread()?;
    thread.calls.entry_hits += 1;
    // SAFETY: the kernel passes the registers of the probed thread.
    let stack_pointer = unsafe { registers::stack_pointer(ctx.regs) };
    if thread.since_ns != 0 && thread.generation == hit.generation() {
        if stack_pointer < thread.stack_pointer {
            thread.calls.nested += 1;
            return None;
        }
        thread.calls.lost += 1;
    }
    thread.since_ns = 0;
    if !hit.is_observed() {
        return None;
    }
    thread.calls.begun += 1;
    thread.stack_pointer = stack_pointer;
    thread.generation = hit.generation();
    for number in 0..TRACE_CYCLES {
        thread.cycles[number] = hit.cycles(number);
    }
    // Last, so that what this program costs is not part of the duration.
    thread.since_ns = now();
    Some(())
}

#[inline(always)]
fn try_return(ctx: &RetProbeContext) -> Option<()> {
    let ended = now();
    let hit = Hit::find()?;
    let thread = hit.thread()?;
    // SAFETY: the kernel passes the registers of the probed thread.
    let returned = unsafe { registers::stack_pointer(ctx.regs) }.wrapping_sub(registers::RETURNED);
    let is_it = thread.stack_pointer == returned && thread.generation == hit.generation();
    if thread.since_ns == 0 || !is_it {
        return None;
    }
    let duration = ended.saturating_sub(thread.since_ns);
    thread.since_ns = 0;
    if duration > thread.calls.longest_ns {
        thread.calls.longest_ns = duration;
    }
    thread.calls.durations.record(trace_bucket(duration), duration);
    if duration > hit.config.slower_ns {
        report(&hit, thread, ended, duration);
    }
    Some(())
}

/// Reports a slow call.
#[inline(always)]
fn report(hit: &Hit, thread: &mut TracedThread, ended_ns: u64, duration_ns: u64) {
    let mut ran = 0;
    for number in 0..TRACE_CYCLES {
        // Cycles run in the main thread.
        if hit.is_main && thread.cycles[number] != hit.cycles(number) {
            ran |= 1 << number;
        }
    }
    match SLOW_CALLS.reserve::<TracedCall>(0) {
        Some(mut entry) => {
            entry.write(TracedCall { ended_ns, duration_ns, tid: hit.tid, ran });
            entry.submit(NO_WAKEUP);
        }
        None => thread.calls.slow_lost += 1,
    }
}

#[inline(always)]
fn try_eviction(ctx: &ProbeContext) -> Option<()> {
    let hit = Hit::find()?;
    hit.shared_hit();
    if hit.is_main && is_over_the_limit(ctx)? {
        hit.begin_cycle(EVICTION as usize);
    }
    Some(())
}

/// Returns whether a call at the goal site is over the limit, as far as that is known. The daemon's program does the
/// same.
#[inline(always)]
fn is_over_the_limit(ctx: &ProbeContext) -> Option<bool> {
    let config = TRACE_EVICTION.get(0)?;
    // SAFETY: a valid entry, which nothing else uses at the same time.
    let words = unsafe { &mut *TRACE_WORDS.get_ptr_mut(0)? };
    // SAFETY: the kernel passes the registers of the probed thread.
    unsafe { registers::copy(words, ctx.regs) };
    if !read_words(&config.reads, words) {
        return Some(true);
    }
    let known = |variable: Variable| {
        let how = &config.recipes[variable as usize];
        match how.is_known() {
            true => Known { value: recipe(how, words), is_known: true },
            false => Known::NOT,
        }
    };
    let (used, maxmemory) = (known(Variable::MemUsed), known(Variable::Maxmemory));
    let (reported, overhead) = (known(Variable::MemReported), known(Variable::Overhead));
    Some(!is_within_limit(used, maxmemory, reported, overhead))
}

#[inline(always)]
fn try_cycle(ctx: &ProbeContext) -> Option<()> {
    let hit = Hit::find()?;
    hit.shared_hit();
    // SAFETY: the context is the one that the program was called with.
    let cookie = Cookie::decode(unsafe { bpf_get_attach_cookie(ctx.as_ptr()) });
    let number = core::hint::black_box(cookie.function as usize);
    if hit.is_main && number < TRACE_CYCLES {
        hit.begin_cycle(number);
    }
    Some(())
}
