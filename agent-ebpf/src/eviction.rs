//! The programs on the eviction call: beside its calls they count the goal variables and results, and
//! check the plan.
//!
//! What an evicting call reports is kept aside at the goal site and counted when the call ends, so
//! that at any moment as many durations, results and goals are counted as calls.
//!
//! The first call that fails a check is the last that is looked at: it is not counted, nor is any
//! after it, so that no wrong number leaves the kernel before the agent has withdrawn the plan.

use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evictscope_abi::{
    ALLOCATOR_SLACK, ALLOCATOR_STREAK, Check, EvictionStats, Fault, Member, Probe, QUIET_NS,
    ResultKind, TermKind, Variable, bounds,
};

use crate::calls::{end_inner, end_noop, lose_unfinished, now};
use crate::counters::{self, Sum};
use crate::evaluate::{Known, copy_registers, read_user, recipe, term};
use crate::maps::{self, Error, Hit, count_fault, counters_of_hit, eviction_bins, hit};
use crate::report;

/// With more counters of the allocator in use than this, `mem_reported` is not tested against them:
/// an evicting call would pay too much for it.
const CHECKED_COUNTERS: u32 = 16;

/// A call returns.
#[inline(always)]
pub fn try_return(ctx: &RetProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Return) }?;
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::eviction(hit.slot)? };
    let result = result_kind(ctx.ret::<u64>() as u32);
    if hit.calls.inner_since_ns != 0 {
        end_evicting(&mut hit, stats, ended, result)?;
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
    copy_registers(&mut stats.registers, unsafe { &*ctx.regs });
    lose_unfinished(&mut hit.calls);
    match evaluate_goal(&hit, stats)? {
        Goal::Over => {
            // Last, so that what this program costs is not part of the duration.
            let begun = now();
            if begun.saturating_sub(hit.calls.last_inner_ns) >= QUIET_NS {
                stats.burst_before_ended_ns = hit.calls.last_inner_ns;
                stats.burst_began_ns = begun;
            }
            hit.calls.inner_since_ns = begun;
        }
        Goal::Within => {}
        // The return program is not to take it for a no-op call.
        Goal::TurnedAway => hit.calls.entered_ns = 0,
    }
    Ok(())
}

/// An evicting call is about to return.
#[inline(always)]
pub fn try_done(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns == 0 {
        return Ok(());
    }
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::eviction(hit.slot)? };
    // SAFETY: the kernel passes the registers of the probed thread.
    copy_registers(&mut stats.registers, unsafe { &*ctx.regs });
    let mut result = ResultKind::Unknown;
    if let Some(place) = hit.config.results.get(hit.site as usize)
        && place.kind != TermKind::Absent as u8
    {
        let Known { value, is_known } = term(place, &stats.registers);
        if is_known {
            result = result_kind(value as u32);
        }
    }
    // The return program has nothing left to count.
    hit.calls.entered_ns = 0;
    end_evicting(&mut hit, stats, ended, result)
}

/// What the recipes say of a call.
#[derive(Clone, Copy)]
enum Goal {
    /// It is over the limit; its values are in `pending`.
    Over,
    /// It turns out to be within the limit: a no-op call.
    Within,
    /// Its values cannot be trusted: it is not to be counted, in any way.
    TurnedAway,
}

/// Evaluates the recipes into `pending`.
#[inline(always)]
fn evaluate_goal(hit: &Hit, stats: &mut EvictionStats) -> Result<Goal, Error> {
    let reported = known(hit, stats, Variable::MemReported);
    let overhead = known(hit, stats, Variable::Overhead);
    let used = known(hit, stats, Variable::MemUsed);
    let tofree = known(hit, stats, Variable::MemTofree);
    let maxmemory = known(hit, stats, Variable::Maxmemory);
    if used.is_known && maxmemory.is_known && used.value <= maxmemory.value {
        return Ok(Goal::Within);
    }
    // `mem_used` is 0 then, whatever the difference comes to.
    if reported.is_known && overhead.is_known && overhead.value > reported.value {
        return Ok(Goal::Within);
    }
    let is_near = check_allocator(hit, stats, reported)?;
    if reported.is_known
        && overhead.is_known
        && used.is_known
        && tofree.is_known
        && maxmemory.is_known
    {
        let right = used.value == reported.value.wrapping_sub(overhead.value)
            && tofree.value == used.value.wrapping_sub(maxmemory.value);
        if !check(stats, Check::Arithmetic, right) {
            let variables = [reported, overhead, used, tofree, maxmemory].map(|known| known.value);
            report::arithmetic(hit.config.tgid, &variables);
        }
    }
    let member = hit.config.members[Member::Maxmemory as usize];
    if maxmemory.is_known && member != 0 {
        match read_user(member) {
            Some(member) => {
                if !check(stats, Check::Maxmemory, member == maxmemory.value) {
                    report::maxmemory(hit.config.tgid, maxmemory.value, member);
                }
            }
            None => count_fault(hit.slot, Fault::Member),
        }
    }
    if !is_near || has_failed(stats) {
        return Ok(Goal::TurnedAway);
    }
    keep(stats, Variable::MemReported, reported);
    keep(stats, Variable::Overhead, overhead);
    keep(stats, Variable::MemUsed, used);
    keep(stats, Variable::MemTofree, tofree);
    Ok(Goal::Over)
}

/// Compares with the allocator's counter; `false` where that says that the call must not be counted.
#[inline(always)]
fn check_allocator(hit: &Hit, stats: &mut EvictionStats, reported: Known) -> Result<bool, Error> {
    if !reported.is_known || hit.config.used_memory.address == 0 {
        return Ok(true);
    }
    // SAFETY: an update is under way.
    let copy = unsafe { &mut *counters_of_hit(hit.slot)? };
    let Sum { known, is_fault } = counters::sum::<CHECKED_COUNTERS>(&hit.config.used_memory, copy);
    if is_fault {
        count_fault(hit.slot, Fault::Allocator);
    }
    if !known.is_known {
        return Ok(true);
    }
    let moved = known.value.abs_diff(reported.value);
    stats.allocator_moved += (moved != 0) as u64;
    let is_near = moved <= ALLOCATOR_SLACK;
    stats.allocator_far = if is_near { 0 } else { stats.allocator_far + 1 };
    let right = stats.allocator_far < ALLOCATOR_STREAK;
    if !check(stats, Check::Allocator, right) {
        report::allocator(hit.config.tgid, reported.value, known.value);
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

/// Whether an evicting call has failed a check: then the plan does not fit this server, and until
/// the agent has withdrawn it nothing more is counted.
#[inline(always)]
fn has_failed(stats: &EvictionStats) -> bool {
    let [allocator, arithmetic, maxmemory] = stats.check_failures;
    allocator | arithmetic | maxmemory != 0
}

#[inline(always)]
fn known(hit: &Hit, stats: &EvictionStats, variable: Variable) -> Known {
    let how = &hit.config.recipes[variable as usize];
    if !how.is_known() {
        return Known::NOT;
    }
    let known = recipe(how, &stats.registers);
    if !known.is_known {
        count_fault(hit.slot, Fault::Recipe);
    }
    known
}

#[inline(always)]
fn keep(stats: &mut EvictionStats, variable: Variable, known: Known) {
    stats.pending[variable as usize] = known.value;
    stats.pending_known[variable as usize] = known.is_known as u64;
}

#[inline(always)]
fn end_evicting(
    hit: &mut Hit,
    stats: &mut EvictionStats,
    ended: u64,
    result: ResultKind,
) -> Result<(), Error> {
    let begun = hit.calls.inner_since_ns;
    end_inner(&mut hit.calls, ended);
    stats.evicting_results[result as usize] += 1;
    let [reported, overhead, used, tofree] = stats.pending;
    stats.last_reported = 0;
    if stats.pending_known[Variable::MemReported as usize] != 0 {
        stats
            .mem_reported
            .record(bounds::MEMORY.bucket(reported), reported);
        stats.last_reported = reported;
    }
    if stats.pending_known[Variable::Overhead as usize] != 0 {
        stats
            .overhead
            .record(bounds::OVERHEAD.bucket(overhead), overhead);
    }
    if stats.pending_known[Variable::MemUsed as usize] != 0 {
        stats.mem_used.record(bounds::MEMORY.bucket(used), used);
    }
    if stats.pending_known[Variable::MemTofree as usize] != 0 {
        stats
            .mem_tofree
            .record(bounds::MEM_TOFREE.bucket(tofree), tofree);
    }
    let bins = eviction_bins(hit.slot)?;
    // SAFETY: an update is under way.
    unsafe { (*bins).spread(begun, ended) };
    Ok(())
}

#[inline(always)]
fn result_kind(result: u32) -> ResultKind {
    match result {
        0 => ResultKind::Ok,
        1 => ResultKind::Running,
        2 => ResultKind::Fail,
        _ => ResultKind::Unknown,
    }
}
