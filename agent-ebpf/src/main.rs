//! The BPF programs: thin entry functions, each of which calls a `try_*` in its own module.
//!
//! Numbers are aggregated here, in maps with one slot per server; nothing is sent to user space.
//! Memory of the traced process is only read, never written.
#![no_std]
#![no_main]
#![allow(
    missing_docs,
    reason = "the macros of aya-ebpf make public items without docs"
)]

mod counters;
mod evaluate;
mod eviction;
mod maps;
mod sample;

use aya_ebpf::macros::{perf_event, uprobe, uretprobe};
use aya_ebpf::programs::{PerfEventContext, ProbeContext, RetProbeContext};

/// At the entry of every eviction call.
#[uprobe]
pub fn eviction_enter(ctx: ProbeContext) -> u32 {
    eviction::try_enter(&ctx).unwrap_or(0)
}

/// At the return of every eviction call.
#[uretprobe]
pub fn eviction_return(ctx: RetProbeContext) -> u32 {
    eviction::try_return(&ctx).unwrap_or(0)
}

/// At the goal site: the call is over the limit.
#[uprobe]
pub fn eviction_goal(ctx: ProbeContext) -> u32 {
    eviction::try_goal(&ctx).unwrap_or(0)
}

/// At a done site: an evicting call ends.
#[uprobe]
pub fn eviction_done(ctx: ProbeContext) -> u32 {
    eviction::try_done(&ctx).unwrap_or(0)
}

/// Every [`evictscope_abi::SAMPLE_PERIOD_NS`] of CPU time of a server's main thread.
#[perf_event]
pub fn main_thread_sample(ctx: PerfEventContext) -> u32 {
    sample::try_sample(&ctx).unwrap_or(0)
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // The verifier refuses a program in which this can be reached.
    loop {}
}
