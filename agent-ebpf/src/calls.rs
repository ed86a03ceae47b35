//! The programs on any traced function: they count its calls and time them.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evictscope_abi::{CallStats, Longest, Probe, bounds};

use crate::maps::{Error, Hit, hit};

/// A call begins.
#[inline(always)]
pub fn try_enter(ctx: &ProbeContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Enter) }?;
    lose_unfinished(&mut hit.calls);
    hit.calls.entered_ns = if hit.is_observed() { now() } else { 0 };
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
    if !hit.is_observed() {
        return Ok(());
    }
    // Last, so that what this program costs is not part of the duration.
    hit.calls.inner_since_ns = now();
    Ok(())
}

/// An inner call passes an exit.
#[inline(always)]
pub fn try_exit(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns != 0 && ends(ctx, &hit) {
        end_inner(&mut hit.calls, ended);
        // The return program has nothing left to count.
        hit.calls.entered_ns = 0;
    }
    Ok(())
}

/// Tells whether the call that passes an exit ends there.
#[inline(always)]
pub fn ends(ctx: &ProbeContext, hit: &Hit) -> bool {
    // SAFETY: the kernel passes the registers of the probed thread.
    hit.when.holds(unsafe { (*ctx.regs).eflags })
}

/// Counts the inner call that ended at `ended`, and returns how long it took.
#[inline(always)]
pub fn end_inner(calls: &mut CallStats, ended: u64) -> u64 {
    let duration = leave_inner(calls, ended);
    let bucket = bounds::INNER_NS.bucket(duration);
    calls.inner.record(bucket, duration);
    keep_longest(calls, ended, duration);
    duration
}

/// Notes that the inner call ended at `ended`, and returns how long it took.
#[inline(always)]
pub fn leave_inner(calls: &mut CallStats, ended: u64) -> u64 {
    let duration = ended.saturating_sub(calls.inner_since_ns);
    calls.inner_since_ns = 0;
    calls.last_inner_ns = ended;
    duration
}

/// Keeps the duration of an inner call that ended at `ended`, where it is the longest of its window.
#[inline(always)]
fn keep_longest(calls: &mut CallStats, ended: u64, duration_ns: u64) {
    let window = Longest::window(ended);
    if let Some(longest) = calls.longest.get_mut(Longest::place(window))
        && (longest.window != window || longest.duration_ns < duration_ns)
    {
        *longest = Longest {
            window,
            duration_ns,
        };
    }
}

/// Counts the other call that ended at `ended`.
#[inline(always)]
pub fn end_noop(calls: &mut CallStats, ended: u64) {
    let duration = ended.saturating_sub(calls.entered_ns);
    let bucket = bounds::NOOP_NS.bucket(duration);
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
