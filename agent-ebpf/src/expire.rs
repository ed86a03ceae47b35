//! The programs on the expire cycle: they time it, and read its type and how many keys it has sampled and
//! deleted.
//!
//! All of a cycle is counted when it ends. The first cycle that fails a check is the last that is looked at: it
//! is not counted, nor is any after it.

use aya_ebpf::programs::ProbeContext;
use aya_log_ebpf::warn;
use evictscope_abi::{CycleCheck, CycleType, EncodedTerm, ExpireStats, Fault, Probe, TermKind, bounds};

use crate::calls::{Left, begin_inner, ends, leave_inner, lose_unfinished};
use crate::evaluate::{self, Known, SiteWords};
use crate::kernel::now;
use crate::maps::{self, Error, count_fault, hit};
use crate::registers;

/// A cycle has passed its early returns.
#[inline(always)]
pub fn try_start(ctx: &ProbeContext) -> Result<(), Error> {
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Inner) }?;
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::expire(hit.slot)? };
    lose_unfinished(&mut hit.calls);
    if !hit.is_observed() || has_failed(stats) {
        return Ok(());
    }
    // SAFETY: the kernel passes the registers of the probed thread.
    unsafe { registers::copy(&mut stats.words.0, ctx.regs) };
    let Some(start) = hit.config.expire.starts.get(hit.site as usize) else {
        return Ok(());
    };
    let Known { value, is_known } = place(hit.slot, &start.cycle_type, &stats.words.0);
    let job = place(hit.slot, &start.job, &stats.words.0);
    // Each is an `int`; above it can be anything.
    let (value, job) = (value as u32 as u64, job.value as u32 as u64);
    if is_known && value | job > CycleType::Fast as u64 {
        stats.check_failures[CycleCheck::Type as usize] += 1;
        report_type(hit.config.tgid, value, job);
        return Ok(());
    }
    let expired = place(hit.slot, &start.expired, &stats.words.0);
    if !expired.is_known && start.expired.kind != TermKind::Absent as u8 {
        return Ok(());
    }
    stats.expired_before = expired.value;
    stats.under_way = match (is_known, job) {
        (false, _) => CycleType::Unknown as u64,
        (true, 0) => value,
        (true, _) => CycleType::SlowFields as u64 + value,
    };
    begin_inner(&mut hit);
    Ok(())
}

/// A cycle passes an end site.
#[inline(always)]
pub fn try_end(ctx: &ProbeContext) -> Result<(), Error> {
    let ended = now();
    // SAFETY: the only call in this program.
    let mut hit = unsafe { hit(ctx, Probe::Exit) }?;
    if hit.calls.inner_since_ns == 0 || !ends(ctx, &hit)? {
        return Ok(());
    }
    // SAFETY: an update is under way.
    let stats = unsafe { &mut *maps::expire(hit.slot)? };
    // SAFETY: the kernel passes the registers of the probed thread.
    unsafe { registers::copy(&mut stats.words.0, ctx.regs) };
    let Left { wall: duration, .. } = leave_inner(&mut hit, ended);
    let (mut sampled, mut expired) = (Known::NOT, Known::NOT);
    if let Some(keys) = hit.config.expire.ends.get(hit.site as usize) {
        sampled = place(hit.slot, &keys.sampled, &stats.words.0);
        expired = place(hit.slot, &keys.expired, &stats.words.0);
    }
    if expired.is_known {
        expired.value = expired.value.wrapping_sub(stats.expired_before);
    }
    if sampled.is_known && expired.is_known && expired.value > sampled.value {
        stats.check_failures[CycleCheck::Keys as usize] += 1;
        report_keys(hit.config.tgid, sampled.value, expired.value);
        return Ok(());
    }
    // Hidden from the optimiser, as in `Histogram::record`.
    let of_type = core::hint::black_box(stats.under_way as usize);
    if let Some(cycles) = stats.cycles.get_mut(of_type) {
        cycles.duration.record(bounds::CYCLE_NS.bucket(duration), duration);
        cycles.sampled = cycles.sampled.wrapping_add(sampled.value);
        cycles.expired = cycles.expired.wrapping_add(expired.value);
    }
    Ok(())
}

/// Returns the value at a place; counts a fault if its memory cannot be read.
#[inline(always)]
fn place(slot: u32, place: &EncodedTerm, words: &SiteWords) -> Known {
    let known = evaluate::place(place, words);
    if !known.is_known && place.kind != TermKind::Absent as u8 {
        count_fault(slot, Fault::Recipe);
    }
    known
}

/// Returns whether a cycle has failed a check: if so, the plan does not fit this server, and nothing more is
/// counted until the agent has withdrawn that part of it.
#[inline(always)]
fn has_failed(stats: &ExpireStats) -> bool {
    let [of_type, keys] = stats.check_failures;
    of_type | keys != 0
}

// Reports of values that disagree: see those of the eviction call.

/// Reports that the type of an expire cycle is neither slow nor fast, or it is neither for keys nor for fields.
#[inline(never)]
fn report_type(tgid: u32, cycle_type: u64, job: u64) {
    warn!(&(), "{}: the type of an expire cycle is {}, and its job {}, not 0 or 1", tgid, cycle_type, job);
}

/// Reports that more keys had expired than an expire cycle sampled.
#[inline(never)]
fn report_keys(tgid: u32, sampled: u64, expired: u64) {
    warn!(&(), "{}: an expire cycle sampled {} keys, of which {} had expired", tgid, sampled, expired);
}
