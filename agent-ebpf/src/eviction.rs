//! The programs on the eviction call: besides its calls, they count the goal variables and results, and check the plan.
//!
//! What an evicting call reports is set aside at the goal site and counted when the call ends, so that at any moment as
//! many durations, results and goals are counted as calls.
//!
//! The first call that fails a check is the last that is looked at: it is not counted, nor is any after it. The checks
//! that read the server's memory are made at the first calls of a burst and then at one in [`CHECKED_ONE_IN`]. So a
//! recipe that is wrong from the beginning never gives a number. If one becomes wrong in the middle of a burst, fewer
//! than that many wrong numbers are counted before it is noticed. The goal variables are compared with each other at
//! every call, but that proves nothing if the plan computes some of them from the others.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use aya_log_ebpf::warn;
use evictscope_abi::{
    ALLOCATOR_SLACK, ALLOCATOR_STREAK, AllocatorCounters, CHECKED_FIRST, CHECKED_ONE_IN, COUNTER_BYTES, Check,
    EvictionStats, Fault, Noted, Probe, QUIET_NS, ResultKind, SLOW_SLOTS, SlowEviction, Variable, bounds,
};

use crate::calls::{begin_inner, end_inner, end_noop, ends, lose_unfinished};
use crate::evaluate::{Known, is_within_limit, place, read_user, read_words, recipe};
use crate::kernel::now;
use crate::maps::{self, COUNTER_WORDS, CounterWords, Error, Hit, count_fault, hit};
use crate::registers;

/// With more allocator counters in use than this, `mem_reported` is not tested against them: it would cost
/// an evicting call too much.
const CHECKED_COUNTERS: u32 = 16;

/// A call returns.
#[inline(always)]
pub fn try_return(ctx: &RetProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Return) }?;
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::eviction(hit.slot)? };
    let result = ResultKind::of(ctx.ret::<u64>() as u32);
    if hit.calls.inner_since_ns != 0 {
        end_evicting(&mut hit, stats, ended, result);
    } else if hit.calls.entered_ns != 0 && !has_failed(stats) {
        end_noop(&mut hit.calls, ended);
        stats.noop_results[result as usize] += 1;
    }
    hit.calls.entered_ns = 0;
    Ok(())
}

/// A call is over the limit and about to evict.
#[inline(always)]
pub fn try_goal(ctx: &ProbeContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Inner) }?;
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::eviction(hit.slot)? };
    if has_failed(stats) {
        return Ok(());
    }
    // SAFETY: the kernel passes the registers of the probed thread.
    unsafe { registers::copy(&mut stats.words.0, ctx.regs) };
    lose_unfinished(&mut hit.calls);
    if !hit.is_observed() {
        return Ok(());
    }
    match evaluate_goal(&hit, stats)? {
        Kind::Over => {
            let begun = begin_inner(&mut hit);
            if begun.saturating_sub(hit.calls.last_inner_ns) >= QUIET_NS {
                stats.burst_before_ended_ns = hit.calls.last_inner_ns;
                stats.burst_began_ns = begun;
                stats.first_left = CHECKED_FIRST;
            }
            // Some calls must not evict, and go from here to where those within the limit return: they end as they
            // begin. If the entry of such a call was seen, its return will be.
            if hit.calls.entered_ns == 0 && ends(ctx, &hit)? {
                let result = result(&hit, stats);
                end_evicting(&mut hit, stats, begun, result);
            }
        }
        Kind::Within => {}
        // The return program must not take it for a no-op call.
        Kind::TurnedAway => hit.calls.entered_ns = 0,
    }
    Ok(())
}

/// An evicting call passes a done site.
#[inline(always)]
pub fn try_done(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns == 0 || !ends(ctx, &hit)? {
        return Ok(());
    }
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::eviction(hit.slot)? };
    // SAFETY: the kernel passes the registers of the probed thread.
    unsafe { registers::copy(&mut stats.words.0, ctx.regs) };
    let result = result(&hit, stats);
    // The return program has nothing left to count.
    hit.calls.entered_ns = 0;
    end_evicting(&mut hit, stats, ended, result);
    Ok(())
}

/// Returns the result of a call that ends at the site that was hit.
#[inline(always)]
fn result(hit: &Hit, stats: &EvictionStats) -> ResultKind {
    match hit.config.eviction.results.get(hit.site as usize) {
        Some(of) => match place(of, &stats.words.0) {
            Known { value, is_known: true } => ResultKind::of(value as u32),
            _ => ResultKind::Unknown,
        },
        None => ResultKind::Unknown,
    }
}

/// What the recipes say about a call.
#[derive(Clone, Copy)]
enum Kind {
    /// It is over the limit; its values are in `pending`.
    Over,
    /// It turns out to be within the limit: a no-op call.
    Within,
    /// Its values cannot be trusted: it must not be counted in any way.
    TurnedAway,
}

/// Evaluates the recipes into `pending`.
#[inline(always)]
fn evaluate_goal(hit: &Hit, stats: &mut EvictionStats) -> Result<Kind, Error> {
    let is_read = read_words(&hit.config.eviction.reads, &mut stats.words.0);
    if !is_read {
        count_fault(hit.slot, Fault::Recipe);
    }
    let reported = known(hit, stats, is_read, Variable::MemReported);
    let overhead = known(hit, stats, is_read, Variable::Overhead);
    let used = known(hit, stats, is_read, Variable::MemUsed);
    let tofree = known(hit, stats, is_read, Variable::MemTofree);
    let maxmemory = known(hit, stats, is_read, Variable::Maxmemory);
    if is_within_limit(used, maxmemory, reported, overhead) {
        return Ok(Kind::Within);
    }
    let is_compared = is_compared(stats);
    let is_near = !is_compared || check_allocator(hit, stats, reported)?;
    if reported.is_known && overhead.is_known && used.is_known && tofree.is_known && maxmemory.is_known {
        let right = used.value == reported.value.wrapping_sub(overhead.value)
            && tofree.value == used.value.wrapping_sub(maxmemory.value);
        if !check(stats, Check::Arithmetic, right) {
            let variables = [reported, overhead, used, tofree, maxmemory].map(|known| known.value);
            report_arithmetic(hit.config.tgid, &variables);
        }
    }
    let member = hit.config.eviction.maxmemory;
    if is_compared && maxmemory.is_known && member != 0 {
        match read_user(member) {
            Some(member) => {
                if !check(stats, Check::Maxmemory, member == maxmemory.value) {
                    report_maxmemory(hit.config.tgid, maxmemory.value, member);
                }
            }
            None => count_fault(hit.slot, Fault::Member),
        }
    }
    if !is_near || has_failed(stats) {
        return Ok(Kind::TurnedAway);
    }
    note(&mut stats.pending.reported, reported);
    note(&mut stats.pending.overhead, overhead);
    note(&mut stats.pending.tofree, tofree);
    Ok(Kind::Over)
}

/// Returns whether this call is compared with the server's own memory, and counts down to the next that is.
#[inline(always)]
fn is_compared(stats: &mut EvictionStats) -> bool {
    if stats.first_left == 0 && stats.allocator_far == 0 && stats.skipped_left != 0 {
        stats.skipped_left -= 1;
        return false;
    }
    stats.first_left = stats.first_left.saturating_sub(1);
    stats.skipped_left = CHECKED_ONE_IN - 1;
    true
}

/// Compares with the allocator's counter. Returns `false` if the call must not be counted.
#[inline(always)]
fn check_allocator(hit: &Hit, stats: &mut EvictionStats, reported: Known) -> Result<bool, Error> {
    if !reported.is_known || hit.config.eviction.used_memory.address == 0 {
        return Ok(true);
    }
    // SAFETY: an update is under way.
    let copy = unsafe { &mut *maps::counters(hit.slot)? };
    let Sum { known, is_fault } = sum::<CHECKED_COUNTERS>(&hit.config.eviction.used_memory, copy);
    if is_fault {
        count_fault(hit.slot, Fault::Allocator);
    }
    if !known.is_known {
        return Ok(true);
    }
    let is_near = known.value.abs_diff(reported.value) <= ALLOCATOR_SLACK;
    stats.allocator_far = if is_near { 0 } else { stats.allocator_far + 1 };
    let right = stats.allocator_far < ALLOCATOR_STREAK;
    if !check(stats, Check::Allocator, right) {
        report_allocator(hit.config.tgid, reported.value, known.value);
    }
    Ok(is_near)
}

/// Counts a test, and returns whether it passed.
#[inline(always)]
fn check(stats: &mut EvictionStats, check: Check, right: bool) -> bool {
    stats.checks[check as usize] += 1;
    if !right {
        stats.check_failures[check as usize] += 1;
    }
    right
}

/// Returns whether an evicting call has failed a check: if so, the plan does not fit this server, and nothing more is
/// counted until the agent has withdrawn it.
#[inline(always)]
fn has_failed(stats: &EvictionStats) -> bool {
    let [allocator, arithmetic, maxmemory] = stats.check_failures;
    allocator | arithmetic | maxmemory != 0
}

#[inline(always)]
fn known(hit: &Hit, stats: &EvictionStats, is_read: bool, variable: Variable) -> Known {
    let how = &hit.config.eviction.recipes[variable as usize];
    if !is_read || !how.is_known() {
        return Known::NOT;
    }
    Known { value: recipe(how, &stats.words.0), is_known: true }
}

#[inline(always)]
fn note(to: &mut Noted, known: Known) {
    to.value = known.value;
    to.is_known = known.is_known as u64;
}

#[inline(always)]
fn end_evicting(hit: &mut Hit, stats: &mut EvictionStats, ended: u64, result: ResultKind) {
    let duration_ns = end_inner(hit, ended);
    keep_slow(
        stats,
        SlowEviction { ended_ns: ended, duration_ns, tofree: stats.pending.tofree, result: result as u64 },
    );
    stats.evicting_results[result as usize] += 1;
    stats.last = stats.pending;
    let Noted { value, is_known } = stats.pending.tofree;
    if is_known != 0 {
        stats.mem_tofree.record(bounds::MEM_TOFREE.bucket(value), value);
    }
}

/// Keeps an evicting call if it is the longest of its window in its slot.
#[inline(always)]
fn keep_slow(stats: &mut EvictionStats, call: SlowEviction) {
    let slot = stats.number as usize % SLOW_SLOTS;
    stats.number = stats.number.wrapping_add(1);
    if let Some(bank) = stats.slow.get_mut(SlowEviction::bank(call.ended_ns))
        && let Some(kept) = bank.get_mut(slot)
        && call.replaces(kept)
    {
        *kept = call;
    }
}

/// What the counters came to.
struct Sum {
    /// The sum; not known if it was not read.
    known: Known,
    /// Whether that is because memory could not be read.
    is_fault: bool,
}

impl Sum {
    const FAULT: Self = Self { known: Known::NOT, is_fault: true };
    const SKIPPED: Self = Self { known: Known::NOT, is_fault: false };
}

/// Adds up the counters that are in use, read all at once. Skips them if there are more than `MOST`.
#[inline(always)]
fn sum<const MOST: u32>(of: &AllocatorCounters, copy: &mut CounterWords) -> Sum {
    let mut count = of.count;
    let mut sum = 0_u64;
    if of.threads != 0 {
        let Some(threads) = number_of_threads(of) else {
            return Sum::FAULT;
        };
        if threads < count as u64 {
            count = threads as u32;
        } else if threads > count as u64 && of.overflow != 0 {
            match read_user(of.overflow) {
                Some(overflow) => sum = overflow,
                None => return Sum::FAULT,
            }
        }
    }
    let stride = of.stride as u64;
    let bytes = (count.wrapping_sub(1) as u64 * stride + 1) * 8;
    if of.address == 0 || count == 0 || count > MOST || bytes > COUNTER_BYTES as u64 {
        return Sum::SKIPPED;
    }
    // SAFETY: `copy` has COUNTER_BYTES; the helper checks the address and fails if it cannot be read.
    let read = unsafe {
        generated::bpf_probe_read_user(copy.as_mut_ptr().cast(), bytes as u32, of.address as *const core::ffi::c_void)
    };
    if read != 0 {
        return Sum::FAULT;
    }
    for index in 0..MOST as u64 {
        // Hidden from the optimiser, which would make it a pointer that the verifier cannot follow.
        let word = core::hint::black_box(index * stride);
        if index >= count as u64 || word >= COUNTER_WORDS as u64 {
            break;
        }
        // Counters can be negative: the sum is modulo 2^64.
        sum = sum.wrapping_add(copy[word as usize]);
    }
    Sum { known: Known { value: sum, is_known: true }, is_fault: false }
}

#[inline(always)]
fn number_of_threads(of: &AllocatorCounters) -> Option<u64> {
    if of.threads_width == 4 {
        // SAFETY: the helper checks the address and fails if it cannot be read.
        unsafe { bpf_probe_read_user(of.threads as *const u32) }.ok().map(u64::from)
    } else {
        read_user(of.threads)
    }
}

// Reports of values that disagree, in the agent's log. Each begins with the server's process id, so that the agent can
// add a name. The functions are not inlined, so they cost a program neither time nor stack until it calls one.

/// Reports that `mem_reported` and the sum of the allocator's counters disagree.
#[inline(never)]
fn report_allocator(tgid: u32, mem_reported: u64, counted: u64) {
    warn!(&(), "{}: mem_reported is {}, but the allocator counts {}", tgid, mem_reported, counted);
}

/// Reports that the goal variables do not add up: `mem_reported`, `overhead`, `mem_used`,
/// `mem_tofree`, `maxmemory`.
#[inline(never)]
fn report_arithmetic(tgid: u32, variables: &[u64; 5]) {
    let [reported, overhead, used, tofree, maxmemory] = *variables;
    warn!(
        &(),
        "{}: mem_reported {} - overhead {} should be mem_used {}, and mem_used - maxmemory {} should be mem_tofree {}",
        tgid,
        reported,
        overhead,
        used,
        maxmemory,
        tofree
    );
}

/// Reports that `maxmemory` in the calculation and in `server` disagree.
#[inline(never)]
fn report_maxmemory(tgid: u32, calculated: u64, configured: u64) {
    warn!(&(), "{}: maxmemory is {} in the calculation, but server.maxmemory is {}", tgid, calculated, configured);
}
