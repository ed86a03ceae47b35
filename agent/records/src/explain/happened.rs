//! What happened, in one sentence.

use std::iter;
use std::time::Duration;

use evictscope_telemetry::{Burst, Moment, StallCause, microseconds};
use jiff::Timestamp;

use super::window::Window;
use super::{commands, loss, parts as memory_parts};
use crate::text::{capital, count, seconds, size, timestamp};

/// If calls were observed for less than this share of the time, they took longer than is known.
const MOST: f64 = 0.95;
/// What took less of the time is not mentioned.
const MUCH: f64 = 0.01;

/// Returns the sentence: what clients felt, then what the server did.
pub fn sentence(window: &Window<'_>) -> String {
    let refused = |refused| format!("{} commands were refused in {}", count(refused as f64), seconds(window.seconds()));
    let mut parts = Vec::from_iter(window.refused().map(refused));
    parts.extend(felt(window));
    match window.burst() {
        Some(burst) => {
            parts.push(evictions(window, burst));
            parts.extend(commands::grown(window));
        }
        None => parts.extend(without_burst(window)),
    }
    parts.extend(memory_parts::grown_most(window));
    parts.extend(loss::others(window));
    parts.extend(window.burst().and_then(reclaim));
    parts.extend(window.child_us().map(|us| {
        format!(
            "a process that the server had forked, to write an RDB or AOF file, took {} of CPU time",
            seconds(us as f64 / 1e6)
        )
    }));
    if parts.is_empty() {
        parts.push("what happened is not known".to_owned());
    }
    let sentence = format!("{}.", parts.join("; "));
    let Some(ending) = window.record.ending else { return capital(&sentence) };
    let at = timestamp(window.record.ended_us).unwrap_or(Timestamp::MAX).strftime("%H:%M:%S");
    let before = seconds(window.seconds());
    format!("The server {ending}, at {at} UTC. In the {before} before that: {sentence}")
}

fn felt(window: &Window<'_>) -> Option<String> {
    let stalled = window.stalled_us().filter(|stalled| *stalled > 0)?;
    let time = |us: u64| seconds(us as f64 / 1e6);
    let causes = window.stalled_by();
    let causes = causes.iter().map(|(cause, us)| match causes.len() {
        1 => format!("by {}", of(*cause)),
        _ => format!("{} of it by {}", time(*us), of(*cause)),
    });
    let stalled = format!("clients were stalled for {}", time(stalled));
    let mut text = Vec::from_iter(iter::once(stalled).chain(causes)).join(", ");
    let most = |value: fn(&Moment) -> Option<u64>| window.whole.iter().filter_map(value).max();
    if let (Some(longest), Some(clients)) =
        (most(|moment| moment.longest_wait.map(microseconds)), most(|moment| moment.clients_waiting))
    {
        text += &format!("; the longest request waited {}", time(longest));
        if clients > 1 {
            text += &format!(", and up to {} clients waited at once", count(clients as f64));
        }
    }
    Some(text)
}

/// Names what took the main thread's time, after "by".
fn of(cause: StallCause) -> &'static str {
    match cause {
        StallCause::Eviction => "evictions",
        StallCause::Expire => "expiry",
        StallCause::Commands => "other commands",
        StallCause::Cpu => "waiting for a CPU",
        StallCause::Blocked => "waiting for a disk, a lock, or to be continued",
        StallCause::Unknown => "an unknown cause",
    }
}

fn evictions(window: &Window<'_>, burst: &Burst) -> String {
    let length = seconds(burst.duration.as_secs_f64());
    let share = burst.eviction_cpu_share.map(|share| 100.0 * share.min(1.0));
    let took =
        share.map_or_else(String::new, |percent| format!(" and took {percent:.0} % of the main thread's CPU time"));
    let keys = match window.evicted_keys() {
        Some(1) => "; 1 key was removed".to_owned(),
        Some(keys) => format!("; {} were removed", loss::of_all(window, keys)),
        None => String::new(),
    };
    format!("evictions went on for {length}{took}{keys}")
}

fn without_burst(window: &Window<'_>) -> Vec<String> {
    let length = window.seconds();
    let took = |what: &str, time: fn(&Moment) -> Option<Duration>| {
        let took = window.grown_us(time)? as f64 / 1e6;
        (took > MUCH * length).then(|| format!("{what} took {}", seconds(took)))
    };
    let observed = window.observed_share().filter(|share| *share < MOST).map_or_else(String::new, |share| {
        let percent = 100.0 * share;
        format!(" while they were observed ({percent:.0} % of the time)")
    });
    let evicting = took("evicting calls", |moment| Some(moment.evicting));
    let evicting = evicting.map(|evicting| evicting + &observed);
    let expiring = took("expire cycles", |moment| moment.expiring);
    let took = Vec::from_iter(evicting.into_iter().chain(expiring)).join(" and ");
    let mut parts = Vec::new();
    if !took.is_empty() {
        parts.push(format!("in {}, {took}", seconds(length)));
    }
    if let Some(keys) = window.evicted_keys() {
        parts.push(match keys {
            0 => "no key was evicted".to_owned(),
            1 => "1 key was evicted".to_owned(),
            _ => format!("{} were evicted", loss::of_all(window, keys)),
        });
    }
    let used = window.inside.iter().filter_map(|moment| moment.used_memory).max();
    parts.extend(used.map(|used| match window.limit() {
        Some(limit) => format!("memory was at most {} of {}", size(used), size(limit)),
        None => format!("memory was at most {}", size(used)),
    }));
    parts
}

fn reclaim(burst: &Burst) -> Option<String> {
    let reclaimed = burst.reclaimed().filter(|_| !burst.reclaim.is_zero())?;
    let (reclaimed, length) = (size(reclaimed), seconds(burst.reclaim.as_secs_f64()));
    Some(format!("then memory fell by {reclaimed} in {length}"))
}
