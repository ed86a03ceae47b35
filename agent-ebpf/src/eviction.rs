//! The programs on the eviction call.
//!
//! What an evicting call reports is kept aside at the goal site and counted when the call ends, so
//! that at any moment as many durations, results and goals are counted as calls.
//!
//! The first call that fails a check is the last that is looked at: it is not counted, nor is any
//! after it, so that no wrong number leaves the kernel before the agent has withdrawn the plan.

use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::programs::{ProbeContext, RetProbeContext};
use evictscope_abi::{
    ALLOCATOR_SLACK, ALLOCATOR_STREAK, Check, EvictionStats, Fault, Member, ProgramKind, QUIET_NS,
    ResultKind, ServerConfig, TermKind, Variable, bounds,
};

use crate::counters::{self, Sum};
use crate::evaluate::{Known, copy_registers, read_user, recipe, term};
use crate::maps::{Hit, counters_of_hit, eviction_bins, hit};

/// With more counters of the allocator in use than this, `mem_reported` is not tested against them:
/// an evicting call would pay too much for it.
const CHECKED_COUNTERS: u32 = 16;

/// A call begins.
#[inline(always)]
pub fn try_enter(ctx: &ProbeContext) -> Option<u32> {
    let Hit { stats, .. } = hit(ctx)?;
    begin(stats, ProgramKind::EvictionEnter);
    lose_unfinished(stats);
    stats.entered_ns = now();
    finish(stats);
    Some(0)
}

/// A call returns.
#[inline(always)]
pub fn try_return(ctx: &RetProbeContext) -> Option<u32> {
    let ended = now();
    let Hit { slot, stats, .. } = hit(ctx)?;
    begin(stats, ProgramKind::EvictionReturn);
    let result = result_kind(ctx.ret::<u64>() as u32);
    if stats.evicting_since_ns != 0 {
        end_evicting(slot, stats, ended, result);
    } else if stats.entered_ns != 0 && !has_failed(stats) {
        let duration = ended.saturating_sub(stats.entered_ns);
        stats
            .noop
            .duration
            .record(bounds::DURATION_NS.bucket(duration), duration);
        stats.noop.results[result as usize] += 1;
    }
    stats.entered_ns = 0;
    finish(stats);
    Some(0)
}

/// A call is over the limit and about to evict.
#[inline(always)]
pub fn try_goal(ctx: &ProbeContext) -> Option<u32> {
    let Hit {
        slot,
        config,
        stats,
        ..
    } = hit(ctx)?;
    begin(stats, ProgramKind::EvictionGoal);
    if has_failed(stats) {
        finish(stats);
        return Some(0);
    }
    // SAFETY: the kernel passes the registers of the probed thread.
    copy_registers(&mut stats.registers, unsafe { &*ctx.regs });
    lose_unfinished(stats);
    if evaluate_goal(slot, config, stats) {
        // Last, so that what this program costs is not part of the duration.
        let begun = now();
        if begun.saturating_sub(stats.last_evicting_ns) >= QUIET_NS {
            stats.burst_before_ended_ns = stats.last_evicting_ns;
            stats.burst_began_ns = begun;
        }
        stats.evicting_since_ns = begun;
    }
    finish(stats);
    Some(0)
}

/// An evicting call is about to return.
#[inline(always)]
pub fn try_done(ctx: &ProbeContext) -> Option<u32> {
    let ended = now();
    let Hit {
        slot,
        site,
        config,
        stats,
        ..
    } = hit(ctx)?;
    begin(stats, ProgramKind::EvictionDone);
    if stats.evicting_since_ns != 0 {
        // SAFETY: the kernel passes the registers of the probed thread.
        copy_registers(&mut stats.registers, unsafe { &*ctx.regs });
        let mut result = ResultKind::Unknown;
        if let Some(place) = config.results.get(site as usize)
            && place.kind != TermKind::Absent as u8
        {
            let Known { value, is_known } = term(place, &stats.registers);
            if is_known {
                result = result_kind(value as u32);
            }
        }
        end_evicting(slot, stats, ended, result);
        // The return program has nothing left to count.
        stats.entered_ns = 0;
    }
    finish(stats);
    Some(0)
}

/// Evaluates the recipes into `pending`; `false` where the call turns out to be within the limit, or
/// fails a check: then neither it nor any later one is counted, in any way.
#[inline(always)]
fn evaluate_goal(slot: u32, config: &ServerConfig, stats: &mut EvictionStats) -> bool {
    let reported = known(config, stats, Variable::MemReported);
    let overhead = known(config, stats, Variable::Overhead);
    let used = known(config, stats, Variable::MemUsed);
    let tofree = known(config, stats, Variable::MemTofree);
    let maxmemory = known(config, stats, Variable::Maxmemory);
    if used.is_known && maxmemory.is_known && used.value <= maxmemory.value {
        return false;
    }
    // `mem_used` is 0 then, whatever the difference comes to.
    if reported.is_known && overhead.is_known && overhead.value > reported.value {
        return false;
    }
    let is_near = check_allocator(slot, config, stats, reported);
    if reported.is_known
        && overhead.is_known
        && used.is_known
        && tofree.is_known
        && maxmemory.is_known
    {
        let right = used.value == reported.value.wrapping_sub(overhead.value)
            && tofree.value == used.value.wrapping_sub(maxmemory.value);
        check(stats, Check::Arithmetic, right);
    }
    let member = config.members[Member::Maxmemory as usize];
    if maxmemory.is_known && member != 0 {
        match read_user(member) {
            Some(member) => check(stats, Check::Maxmemory, member == maxmemory.value),
            None => stats.faults[Fault::Member as usize] += 1,
        }
    }
    if !is_near || has_failed(stats) {
        return false;
    }
    keep(stats, Variable::MemReported, reported);
    keep(stats, Variable::Overhead, overhead);
    keep(stats, Variable::MemUsed, used);
    keep(stats, Variable::MemTofree, tofree);
    true
}

/// Compares with the allocator's counter; `false` where that says that the call must not be counted.
#[inline(always)]
fn check_allocator(
    slot: u32,
    config: &ServerConfig,
    stats: &mut EvictionStats,
    reported: Known,
) -> bool {
    if !reported.is_known || config.used_memory.address == 0 {
        return true;
    }
    let Some(copy) = counters_of_hit(slot) else {
        return true;
    };
    let Sum { known, is_fault } = counters::sum::<CHECKED_COUNTERS>(&config.used_memory, copy);
    if is_fault {
        stats.faults[Fault::Allocator as usize] += 1;
    }
    if !known.is_known {
        return true;
    }
    let moved = known.value.abs_diff(reported.value);
    stats.allocator_moved += (moved != 0) as u64;
    let is_near = moved <= ALLOCATOR_SLACK;
    stats.allocator_far = if is_near { 0 } else { stats.allocator_far + 1 };
    check(
        stats,
        Check::Allocator,
        stats.allocator_far < ALLOCATOR_STREAK,
    );
    is_near
}

#[inline(always)]
fn check(stats: &mut EvictionStats, check: Check, right: bool) {
    stats.checks[check as usize] += 1;
    if !right {
        stats.check_failures[check as usize] += 1;
    }
}

/// Whether an evicting call has failed a check: then the plan does not fit this server, and until
/// the agent has withdrawn it nothing more is counted.
#[inline(always)]
fn has_failed(stats: &EvictionStats) -> bool {
    let [allocator, arithmetic, maxmemory] = stats.check_failures;
    allocator | arithmetic | maxmemory != 0
}

#[inline(always)]
fn known(config: &ServerConfig, stats: &mut EvictionStats, variable: Variable) -> Known {
    let how = &config.recipes[variable as usize];
    if !how.is_known() {
        return Known::NOT;
    }
    let known = recipe(how, &stats.registers);
    if !known.is_known {
        stats.faults[Fault::Recipe as usize] += 1;
    }
    known
}

#[inline(always)]
fn keep(stats: &mut EvictionStats, variable: Variable, known: Known) {
    stats.pending[variable as usize] = known.value;
    stats.pending_known[variable as usize] = known.is_known as u64;
}

#[inline(always)]
fn end_evicting(slot: u32, stats: &mut EvictionStats, ended: u64, result: ResultKind) {
    let duration = ended.saturating_sub(stats.evicting_since_ns);
    if let Some(bins) = eviction_bins(slot) {
        bins.spread(stats.evicting_since_ns, ended);
    }
    stats
        .evicting
        .duration
        .record(bounds::DURATION_NS.bucket(duration), duration);
    stats.evicting.results[result as usize] += 1;
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
    stats.evicting_since_ns = 0;
    stats.last_evicting_ns = ended;
}

/// Gives up an evicting call that was never seen to end.
#[inline(always)]
fn lose_unfinished(stats: &mut EvictionStats) {
    if stats.evicting_since_ns != 0 {
        stats.faults[Fault::LostExit as usize] += 1;
        stats.evicting_since_ns = 0;
    }
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

#[inline(always)]
fn begin(stats: &mut EvictionStats, program: ProgramKind) {
    let begun = stats.begun.wrapping_add(1);
    // SAFETY: a valid, aligned field; volatile keeps it before the updates that follow.
    unsafe { core::ptr::write_volatile(&mut stats.begun, begun) };
    stats.hits[program as usize] += 1;
}

#[inline(always)]
fn finish(stats: &mut EvictionStats) {
    let finished = stats.begun;
    // SAFETY: a valid, aligned field; volatile keeps it after the updates before it.
    unsafe { core::ptr::write_volatile(&mut stats.finished, finished) };
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper takes nothing and always succeeds.
    unsafe { bpf_ktime_get_ns() }
}
