//! The BPF program of profiles: it copies the registers and the stack of a main thread, at an event that comes with the
//! thread's CPU time. It is an object of its own with its own maps, and serves all profiles at the same time.
//!
//! User space learns from the copy what the thread was doing, and drops it at once.
#![no_std]
#![no_main]
#![allow(missing_docs, reason = "the macros of aya-ebpf make public items without docs")]

mod kernel;
mod registers;

use core::ffi::c_void;
use core::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{
    bpf_get_attach_cookie, bpf_get_current_task_btf, bpf_probe_read_kernel, bpf_probe_read_user, bpf_task_pt_regs,
};
use aya_ebpf::macros::{map, perf_event};
use aya_ebpf::maps::{Array, RingBuf};
use aya_ebpf::programs::PerfEventContext;
use evictscope_abi::{
    MAX_PROFILES, ProfileCounts, ProfileSample, SAVED_REGISTERS, SAVED_STACK_POINTER, STACK_PAGE, STACK_PAGES,
    profile_slot,
};
use kernel::now;

/// Room for samples until they are read, in bytes: some 110 samples, or two seconds of one server.
const RING_BYTES: u32 = 1 << 22;
/// `BPF_RB_NO_WAKEUP`: the reader polls.
const NO_WAKEUP: u64 = 1;

/// By profile.
#[map]
static PROFILES: Array<ProfileCounts> = Array::with_max_entries(MAX_PROFILES, BPF_F_MMAPABLE);

/// The samples.
#[map]
static SAMPLES: RingBuf = RingBuf::with_byte_size(RING_BYTES, 0);

/// At each event of a main thread.
#[perf_event]
pub fn profile_sample(ctx: PerfEventContext) -> u32 {
    let _ = try_sample(&ctx);
    0
}

#[inline(always)]
fn try_sample(ctx: &PerfEventContext) -> Option<()> {
    let begun = now();
    // SAFETY: the context is the one that the program was called with.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let counts = PROFILES.get_ptr_mut(profile_slot(cookie))?;
    let id = bpf_get_current_pid_tgid();
    // SAFETY: a field of a valid entry, which is written before the event is attached.
    let wanted = unsafe { read_volatile(addr_of!((*counts).tgid)) };
    if id >> 32 != wanted || id & 0xffff_ffff != wanted {
        // SAFETY: as above.
        unsafe { add(addr_of_mut!((*counts).foreign), 1) };
        return None;
    }
    match SAMPLES.reserve::<ProfileSample>(0) {
        Some(mut entry) => {
            take(ctx, entry.as_mut_ptr(), cookie, begun);
            entry.submit(NO_WAKEUP);
            // SAFETY: as above.
            unsafe { add(addr_of_mut!((*counts).samples), 1) };
        }
        // SAFETY: as above.
        None => unsafe { add(addr_of_mut!((*counts).lost), 1) },
    }
    // SAFETY: as above.
    unsafe { add(addr_of_mut!((*counts).spent_ns), now() - begun) };
    Some(())
}

/// Fills a sample.
#[inline(always)]
fn take(ctx: &PerfEventContext, sample: *mut ProfileSample, cookie: u64, at_ns: u64) {
    // SAFETY: the kernel gave the room for the sample.
    unsafe {
        (*sample).profile = cookie;
        (*sample).pages = 0;
        (*sample).at_ns = at_ns;
        if !registers::copy_interrupted(&mut (*sample).registers, ctx) {
            let saved = bpf_task_pt_regs(bpf_get_current_task_btf()) as *const c_void;
            let bytes = size_of::<[u64; SAVED_REGISTERS]>() as u32;
            if bpf_probe_read_kernel((&raw mut (*sample).registers).cast(), bytes, saved) != 0 {
                return;
            }
        }
        let from = (*sample).registers[SAVED_STACK_POINTER] & !(STACK_PAGE as u64 - 1);
        for page in 0..STACK_PAGES {
            let to = (&raw mut (*sample).stack[page]).cast();
            let address = from + (page * STACK_PAGE) as u64;
            if bpf_probe_read_user(to, STACK_PAGE as u32, address as *const c_void) != 0 {
                break;
            }
            (*sample).pages = page as u64 + 1;
        }
    }
}

/// # Safety
///
/// `to` must be in a valid entry that nothing else writes at the same time.
#[inline(always)]
unsafe fn add(to: *mut u64, number: u64) {
    // SAFETY: the caller guarantees it.
    unsafe { write_volatile(to, read_volatile(to).wrapping_add(number)) };
}
