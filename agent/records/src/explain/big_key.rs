//! One eviction call that took most of the time: a big key was freed in the main thread.
//!
//! A call looks at its time limit after 16 keys. One that goes on for far longer has freed a few keys of many elements,
//! and memory falls by what they held.

use std::time::Duration;

use evictscope_telemetry::{Moment, SlowCall};

use super::CauseKind;
use super::finding::{Finding, finding};
use super::window::Window;
use crate::text::{count, keys_were, seconds, size};

/// A shorter call is no stall by itself: stalls are judged by the tenth of a second.
const LEAST_DURATION: Duration = Duration::from_millis(100);
/// One call took at least this share of the time in evicting calls: as much as a cause has to explain.
const MUCH: f64 = 1.0 / 3.0;
/// Evicting an ordinary key takes some microseconds, 20 with as many samples as Redis takes. One that takes this long
/// has tens of thousands of elements.
const LEAST_TIME_A_KEY: Duration = Duration::from_millis(1);
/// Freeing memory takes CPU time. A call that had less of it waited: for a CPU, or for memory that was swapped out.
const LEAST_CPU_SHARE: f64 = 0.5;
/// A big key holds more than this, bytes.
const LEAST_FREED: u64 = 1 << 20;

/// Finds the call, if there was one.
pub fn found(window: &Window<'_>) -> Option<Finding> {
    let slowest = window.slowest().max_by_key(|call| call.duration_ns)?;
    let duration = Duration::from_nanos(slowest.duration_ns);
    if duration < LEAST_DURATION {
        return None;
    }
    let share = duration.as_secs_f64() / evicting(window, duration)?.as_secs_f64();
    let moments = &window.record.moments;
    let (before, after) = around(moments, slowest)?;
    let freed = before.used_memory?.checked_sub(after.used_memory?)?;
    let keys = evicted_within(moments, slowest).or_else(|| rise(before, after, |moment| moment.evicted_keys))?;
    let cpu = after.cpu?.checked_sub(before.cpu?)?;
    let is_big = share >= MUCH
        && freed >= LEAST_FREED
        && keys > 0
        && duration.as_secs_f64() / keys as f64 >= LEAST_TIME_A_KEY.as_secs_f64()
        && cpu.as_secs_f64() >= LEAST_CPU_SHARE * duration.as_secs_f64();
    if !is_big {
        return None;
    }
    let (took, freed, count) = (seconds(duration.as_secs_f64()), size(freed), count(keys as f64));
    let of = match keys {
        1 => format!("a big key of some {freed} in the main thread"),
        _ => format!("{count} keys in the main thread, big ones among them, some {freed} in all"),
    };
    let evidence = vec![
        format!("The call took {:.0} % of the time spent in evicting calls.", 100.0 * share.min(1.0)),
        format!("Meanwhile memory fell by {freed}, and {} evicted.", keys_were(keys)),
    ];
    // It took most of the time, whatever memory went to.
    finding(CauseKind::BigKey, f64::MAX, format!("One eviction call took {took}: it freed {of}"), evidence)
}

/// Returns the time in evicting calls, with an estimate for unobserved ones, and without the time in which they waited
/// for a CPU; at least that of one call.
fn evicting(window: &Window<'_>, one: Duration) -> Option<Duration> {
    let evicting = window.grown_us(|moment| Some(moment.evicting))?;
    let cpu = window.grown_us(|moment| moment.cpu)?;
    let all = (evicting as f64 / window.observed_share()?).min(cpu as f64) / 1e6;
    Some(Duration::try_from_secs_f64(all).ok()?.max(one))
}

/// Returns the last moment before a call and the first one after it.
fn around<'a>(moments: &'a [Moment], call: &SlowCall) -> Option<(&'a Moment, &'a Moment)> {
    let began_us = call.unix_us.checked_sub(call.duration_ns / 1000)?;
    let before = moments.partition_point(|moment| moment.unix_us() <= began_us);
    let after = moments.partition_point(|moment| moment.unix_us() < call.unix_us);
    // It began earlier by the time that it waited for a CPU: while it goes on, no other one ends, and the time in calls
    // grows.
    let within = |[earlier, later]: &&[Moment; 2]| {
        earlier.evicting_calls == later.evicting_calls && earlier.evicting < later.evicting
    };
    let waited = moments.get(..before)?.array_windows().rev().take_while(within).count();
    Some((moments.get(before.checked_sub(1 + waited)?)?, moments.get(after)?))
}

/// Returns the keys that were evicted between the first moment in a call and the last, if they span most of the call.
fn evicted_within(moments: &[Moment], call: &SlowCall) -> Option<u64> {
    let began_us = call.unix_us.checked_sub(call.duration_ns / 1000)?;
    let first = moments.partition_point(|moment| moment.unix_us() < began_us);
    let end = moments.partition_point(|moment| moment.unix_us() <= call.unix_us);
    let (first, last) = (moments.get(first)?, moments.get(end.checked_sub(1)?)?);
    let within_us = last.unix_us().checked_sub(first.unix_us())?;
    let evicted = rise(first, last, |moment| moment.evicted_keys)?;
    // The key itself is counted when it has been freed, which may be after the last moment.
    (within_us * 2 >= call.duration_ns / 1000).then_some(evicted.max(1))
}

fn rise(from: &Moment, to: &Moment, counter: fn(&Moment) -> Option<u64>) -> Option<u64> {
    counter(to)?.checked_sub(counter(from)?)
}
