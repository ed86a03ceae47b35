//! The programs on any traced function: they count its calls and time them.

use aya_ebpf::helpers::{bpf_get_current_task, bpf_probe_read_kernel};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evictscope_abi::{CallStats, Fault, Longest, Probe, REGISTERS, ServerConfig, bounds};

use crate::kernel::now;
use crate::maps::{self, Error, Hit, hit};
use crate::registers;

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
        end_inner(&mut hit, ended);
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
    begin_inner(&mut hit);
    Ok(())
}

/// An inner call passes an exit.
#[inline(always)]
pub fn try_exit(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns != 0 && ends(ctx, &hit)? {
        end_inner(&mut hit, ended);
        // The return program has nothing left to count.
        hit.calls.entered_ns = 0;
    }
    Ok(())
}

/// Returns whether the call that passes a site ends there.
#[inline(always)]
pub fn ends(ctx: &ProbeContext, hit: &Hit) -> Result<bool, Error> {
    if registers::CAN_DECIDE
        && let Some(register) = hit.when.register()
    {
        // SAFETY: an update is under way.
        let scratch = unsafe { &mut *maps::counters(hit.slot)? };
        let words = scratch.first_chunk_mut().ok_or(Error::Fault(hit.slot, Fault::Map))?;
        // SAFETY: the kernel passes the registers of the probed thread.
        unsafe { registers::copy(words, ctx.regs) };
        return Ok(hit.when.holds(words[usize::from(register) % REGISTERS]));
    }
    // SAFETY: as above.
    Ok(hit.when.holds(unsafe { registers::flags(ctx.regs) }))
}

/// Notes that an inner call begins, and returns when. Must be called last, so that what the program costs is
/// not part of the duration.
#[inline(always)]
pub fn begin_inner(hit: &mut Hit) -> u64 {
    hit.calls.inner_waited_ns = waited(hit.config);
    let begun = now();
    hit.calls.inner_since_ns = begun;
    begun
}

/// Counts the inner call that ended at `ended`, and returns how long it took without its waits for a CPU.
#[inline(always)]
pub fn end_inner(hit: &mut Hit, ended: u64) -> u64 {
    let Left { wall, waited } = leave_inner(hit, ended);
    let bucket = bounds::INNER_NS.bucket(wall);
    hit.calls.inner.record(bucket, wall);
    let duration = wall - waited;
    keep_longest(&mut hit.calls, ended, duration);
    duration
}

/// An inner call that has ended, nanoseconds.
pub struct Left {
    pub wall: u64,
    /// How much of that it waited for a CPU.
    pub waited: u64,
}

/// Notes that the inner call ended at `ended`, and counts the time in which it waited for a CPU.
#[inline(always)]
pub fn leave_inner(hit: &mut Hit, ended: u64) -> Left {
    let until = waited(hit.config);
    let calls = &mut hit.calls;
    let wall = ended.saturating_sub(calls.inner_since_ns);
    let waited = until.saturating_sub(calls.inner_waited_ns).min(wall);
    calls.cpu_wait_ns = calls.cpu_wait_ns.wrapping_add(waited);
    calls.inner_since_ns = 0;
    calls.last_inner_ns = ended;
    Left { wall, waited }
}

/// Returns for how long the thread has waited for a CPU since it began, nanoseconds (`run_delay` of its `sched_info`:
/// raised when it gets one); 0 if the kernel does not tell.
#[inline(always)]
fn waited(config: &ServerConfig) -> u64 {
    if config.run_delay == 0 {
        return 0;
    }
    // SAFETY: the helper takes nothing and always succeeds.
    let task = unsafe { bpf_get_current_task() } as *const u64;
    let place = task.wrapping_byte_add(config.run_delay as usize);
    // SAFETY: the helper fails if it cannot read.
    unsafe { bpf_probe_read_kernel(place) }.unwrap_or(0)
}

/// Keeps the duration of an inner call that ended at `ended`, if it is the longest of its window.
#[inline(always)]
fn keep_longest(calls: &mut CallStats, ended: u64, duration_ns: u64) {
    let window = Longest::window(ended);
    if let Some(longest) = calls.longest.get_mut(Longest::place(window))
        && (longest.window != window || longest.duration_ns < duration_ns)
    {
        *longest = Longest { window, duration_ns };
    }
}

/// Counts the call that ended at `ended` without passing the inner site.
#[inline(always)]
pub fn end_noop(calls: &mut CallStats, ended: u64) {
    let duration = ended.saturating_sub(calls.entered_ns);
    let bucket = bounds::NOOP_NS.bucket(duration);
    calls.noop.record(bucket, duration);
}

/// Gives up an inner call that was never seen to end, and its entry with it.
#[inline(always)]
pub fn lose_unfinished(calls: &mut CallStats) {
    if calls.inner_since_ns != 0 {
        calls.lost_exits += 1;
        calls.inner_since_ns = 0;
        calls.entered_ns = 0;
    }
}
