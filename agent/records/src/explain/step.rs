//! A hash table that was resized.
//!
//! A table of Redis has 2^n buckets of 8 bytes. When it is full, one of twice the size is allocated at once, so used
//! memory makes a single step by a power of two. Keys move to it bit by bit. Then the old table, of half that size, is
//! freed at once.

use std::time::Duration;

use evictscope_telemetry::Moment;

use super::window::Window;

/// A smaller step may be anything: a client's reply, a block of the replication backlog.
const LEAST_STEP: u64 = 1 << 20;
/// Whatever else happened between two readings, the step may be off its power of two by this share of it. Sizes that an
/// allocator rounds to are a fifth apart or more.
const OFF: f64 = 1.0 / 32.0;
/// The step is this many times as large as any other change in the seconds before, and any other rise in those after:
/// otherwise it is one of many. (What falls after it is evicted.)
const ABOVE_OTHERS: f64 = 4.0;
/// The time before a step that it is compared with, the time after it in which client buffers may still be counted, and
/// the time after it in which evictions begin because of it.
const NEAR_US: u64 = 5_000_000;
/// More readings were not made by an agent: it reads every 2 ms at most.
const MOST_READINGS: usize = 2_500;
/// The fewest readings that are needed before it.
const LEAST_READINGS: usize = 10;
/// Two readings that are further apart do not show a single step.
const LONGEST: Duration = Duration::from_millis(500);
/// A table is doubled when it has as many keys as buckets: the new one takes 16 bytes a key, the old one 8, and the
/// keys at least
/// 40. The tables of keys and of their times to live may be doubled at once: the new ones take 32 bytes a key, the old
///     ones 16, and the keys at least 64. So used memory was at least this many times the step.
const LEAST_USED: u64 = 2;

/// A single step of used memory by a power of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryStep {
    /// The power of two, bytes.
    pub bytes: u64,
    /// When it was seen, since 1970, microseconds.
    pub unix_us: u64,
    /// How long after it used memory stepped down by half of it, seconds; `None` if that is not in the record.
    pub freed_after: Option<f64>,
}

/// Finds the largest such step right before evictions began or while they went on. An earlier one, which left memory
/// within its limit, is no reason for them.
pub fn resized_table(window: &Window<'_>) -> Option<MemoryStep> {
    let moments = &window.record.moments;
    let index_at = |us: u64| moments.partition_point(|moment| moment.unix_us() < us);
    let first = index_at(window.began_us.saturating_sub(NEAR_US));
    let until = index_at(window.evicted_until_us.saturating_add(1));
    let calm_from = index_at(window.began_us).saturating_sub(window.calm.len());
    (first.max(calm_from).max(1)..until).filter_map(|at| step_at(moments, at)).max_by_key(|step| step.bytes)
}

/// Returns the step from the moment before `at` to it, if it is one.
fn step_at(moments: &[Moment], at: usize) -> Option<MemoryStep> {
    let pair: &[Moment; 2] = moments.get(at.checked_sub(1)?..)?.first_chunk()?;
    let [before, after] = pair;
    let risen = change(pair)?;
    if risen < LEAST_STEP as f64 * (1.0 - OFF) {
        return None;
    }
    let near = |us: u64| moments.partition_point(|moment| moment.unix_us() < us);
    let earlier = moments.get(near(before.unix_us().saturating_sub(NEAR_US))..at)?;
    if earlier.len() > MOST_READINGS {
        return None;
    }
    let changes: Vec<_> = earlier.array_windows().filter_map(change).collect();
    if changes.len() < LEAST_READINGS {
        return None;
    }
    let usual = changes.iter().sum::<f64>() / changes.len() as f64;
    let risen = risen - usual;
    let size = power_of_two(risen)?;
    let others = changes.iter().fold(0.0_f64, |most, change| most.max((change - usual).abs()));
    let is_plausible = before.used_memory? / LEAST_USED >= size;
    // Client buffers are counted late, so what they took shows in the seconds after.
    let later = moments.get(at..near(after.unix_us().saturating_add(NEAR_US)))?;
    let others = later.array_windows().filter_map(change).fold(others, |most, rise| most.max(rise - usual));
    let is_single = risen >= ABOVE_OTHERS * others;
    let buffers = |moment: &Moment| Some(moment.client_buffers?.total());
    let buffers_before = buffers(before)?;
    let is_buffers = later.iter().filter_map(buffers).max()?.saturating_sub(buffers_before) >= size / 4;
    // A replica that connects for the first time has a backlog allocated, which is often a power of two, too.
    let replica = |moment: &Moment| moment.client_buffers.map(|buffers| buffers.replica);
    let has_replica = |moment: &Moment| replica(moment).is_some_and(|bytes| bytes > 0);
    let got_replica = !has_replica(before) && later.iter().any(has_replica);
    (is_single && is_plausible && !is_buffers && !got_replica).then(|| MemoryStep {
        bytes: size,
        unix_us: after.unix_us(),
        freed_after: freed_after(moments.get(at..).unwrap_or_default(), size / 2),
    })
}

/// Returns by how much used memory changed between two moments, bytes; `None` if they are too far apart.
fn change([before, after]: &[Moment; 2]) -> Option<f64> {
    let elapsed = Duration::from_micros(after.unix_us().checked_sub(before.unix_us())?);
    let change = after.used_memory? as f64 - before.used_memory? as f64;
    (elapsed <= LONGEST).then_some(change)
}

fn power_of_two(size: f64) -> Option<u64> {
    let exponent = size.log2().round();
    if !(20.0..=50.0).contains(&exponent) {
        return None;
    }
    let power = exponent.exp2();
    ((size - power).abs() <= OFF * power).then_some(power as u64)
}

/// Returns how long after the first of these moments used memory fell by this size at once, seconds.
fn freed_after(later: &[Moment], size: u64) -> Option<f64> {
    let is_freed = |pair: &&[Moment; 2]| change(pair).map(|change| -change).and_then(power_of_two) == Some(size);
    let [_, freed] = later.array_windows().find(is_freed)?;
    Some(freed.unix_us().saturating_sub(later.first()?.unix_us()) as f64 / 1e6)
}
