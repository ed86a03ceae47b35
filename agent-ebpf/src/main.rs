//! The BPF programs: thin entry functions, each of which calls a `try_*` in its own module.
//!
//! Numbers are aggregated here, in maps with one slot per server; nothing is sent to user space.
//! Memory of the traced process is only read, never written.
#![no_std]
#![no_main]
#![cfg_attr(bpf_target_arch = "aarch64", feature(asm_experimental_arch))]
#![allow(missing_docs, reason = "the macros of aya-ebpf make public items without docs")]

mod calls;
mod evaluate;
mod eviction;
mod expire;
mod kernel;
mod maps;
mod order;
mod registers;
mod stack;

use aya_ebpf::macros::{uprobe, uretprobe};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use maps::Error;

/// At the entry of a traced function.
#[uprobe]
pub fn call_enter(ctx: ProbeContext) -> u32 {
    ended(calls::try_enter(&ctx))
}

/// At the return of a traced function.
#[uretprobe]
pub fn call_return(ctx: RetProbeContext) -> u32 {
    ended(calls::try_return(&ctx))
}

/// At the inner site of a traced function.
#[uprobe]
pub fn call_inner(ctx: ProbeContext) -> u32 {
    ended(calls::try_inner(&ctx))
}

/// At an exit of a traced function, after the inner site.
#[uprobe]
pub fn call_exit(ctx: ProbeContext) -> u32 {
    ended(calls::try_exit(&ctx))
}

/// At the return of every eviction call.
#[uretprobe]
pub fn eviction_return(ctx: RetProbeContext) -> u32 {
    ended(eviction::try_return(&ctx))
}

/// At the goal site: the eviction call is over the limit.
#[uprobe]
pub fn eviction_goal(ctx: ProbeContext) -> u32 {
    let result = eviction::try_goal(&ctx);
    if result.is_err() {
        stack::stay(&ctx);
    }
    ended(result)
}

/// At a done site: an evicting call ends.
#[uprobe]
pub fn eviction_done(ctx: ProbeContext) -> u32 {
    ended(eviction::try_done(&ctx))
}

/// At the start site: the expire cycle has passed its early returns.
#[uprobe]
pub fn expire_start(ctx: ProbeContext) -> u32 {
    ended(expire::try_start(&ctx))
}

/// At an end site: an expire cycle ends.
#[uprobe]
pub fn expire_end(ctx: ProbeContext) -> u32 {
    let result = expire::try_end(&ctx);
    if result.is_err() {
        stack::stay(&ctx);
    }
    ended(result)
}

/// Counts what went wrong.
#[inline(always)]
fn ended(result: Result<(), Error>) -> u32 {
    if let Err(error) = result {
        error.count();
    }
    0
}
