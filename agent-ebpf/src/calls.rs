//! The programs on any traced function: they count its calls and time them.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evictscope_abi::{CallStats, Probe, bounds};

use crate::maps::{Error, hit};

/// A call begins.
#[inline(always)]
pub fn try_enter(ctx: &ProbeContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Enter) }?;
    lose_unfinished(&mut hit.calls);
    hit.calls.entered_ns = now();
    Ok(())
}

/// A call returns.
#[inline(always)]
pub fn try_return(ctx: &RetProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Return) }?;
    if hit.calls.inner_since_ns != 0 {
        end_inner(&mut hit.calls, ended);
    } else if hit.calls.entered_ns != 0 {
        end_noop(&mut hit.calls, ended);
    }
    hit.calls.entered_ns = 0;
    Ok(())
}

/// A call passes the inner site.
#[inline(always)]
pub fn try_inner(ctx: &ProbeContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Inner) }?;
    lose_unfinished(&mut hit.calls);
    // Last, so that what this program costs is not part of the duration.
    hit.calls.inner_since_ns = now();
    Ok(())
}

/// An inner call is about to return.
#[inline(always)]
pub fn try_exit(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns != 0 {
        end_inner(&mut hit.calls, ended);
        // The return program has nothing left to count.
        hit.calls.entered_ns = 0;
    }
    Ok(())
}

/// Counts the inner call that ended at `ended`.
#[inline(always)]
pub fn end_inner(calls: &mut CallStats, ended: u64) {
    let duration = ended.saturating_sub(calls.inner_since_ns);
    let bucket = bounds::DURATION_NS.bucket(duration);
    calls.inner.record(bucket, duration);
    calls.inner_since_ns = 0;
    calls.last_inner_ns = ended;
}

/// Counts the other call that ended at `ended`.
#[inline(always)]
pub fn end_noop(calls: &mut CallStats, ended: u64) {
    let duration = ended.saturating_sub(calls.entered_ns);
    let bucket = bounds::DURATION_NS.bucket(duration);
    calls.noop.record(bucket, duration);
}

/// Gives up an inner call that was never seen to end.
#[inline(always)]
pub fn lose_unfinished(calls: &mut CallStats) {
    if calls.inner_since_ns != 0 {
        calls.lost_exits += 1;
        calls.inner_since_ns = 0;
    }
}

/// Returns the monotonic time, nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper takes nothing and always succeeds.
    unsafe { bpf_ktime_get_ns() }
}
