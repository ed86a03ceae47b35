//! What happened, in one sentence.

use evictscope_telemetry::Burst;

use super::window::Window;
use crate::text::{bytes, count, seconds};

/// Calls that were observed for less than this share of the time took longer than is known.
const MOST: f64 = 0.95;

/// Returns the sentence.
pub fn sentence(window: &Window<'_>) -> String {
    let mut parts = match window.burst() {
        Some(burst) => vec![evictions(window, burst)],
        None => without_burst(window),
    };
    parts.extend(window.burst().and_then(throughput));
    if let Some(stalled) = window.stalled_us().filter(|stalled| *stalled > 0) {
        let stalled = seconds(stalled as f64 / 1e6);
        parts.push(format!("the server was stalled for {stalled}"));
    }
    parts.extend(window.burst().and_then(reclaim));
    format!("{}.", parts.join("; "))
}

fn evictions(window: &Window<'_>, burst: &Burst) -> String {
    let length = seconds(burst.duration.as_secs_f64());
    let took = burst
        .eviction_cpu_share
        .map_or_else(String::new, |eviction| {
            let percent = 100.0 * eviction.min(1.0);
            format!(" and took {percent:.0} % of the main thread's CPU time")
        });
    let keys = match window.evicted_keys() {
        Some(1) => "; 1 key was removed".to_owned(),
        Some(keys) => format!("; {} keys were removed", count(keys as f64)),
        None => String::new(),
    };
    format!("Evictions went on for {length}{took}{keys}")
}

fn without_burst(window: &Window<'_>) -> Vec<String> {
    let grown = |counter| {
        let grown_us = window.grown(counter);
        grown_us.map_or_else(
            || "a time that is not known".to_owned(),
            |grown_us| seconds(grown_us as f64 / 1e6),
        )
    };
    let evicting = grown(|moment| Some(moment.evicting_us));
    let expiring = grown(|moment| moment.expiring_us);
    let length = seconds(window.seconds());
    let observed = window.observed_share().filter(|share| *share < MOST);
    let observed = observed.map_or_else(String::new, |share| {
        format!(
            " while they were observed ({:.0} % of the time)",
            100.0 * share
        )
    });
    let mut parts = vec![format!(
        "In {length}, evicting calls took {evicting}{observed} and expire cycles {expiring}"
    )];
    if let Some(keys) = window.evicted_keys() {
        parts.push(format!("{} keys were evicted", count(keys as f64)));
    }
    let used = window.inside.last().and_then(|moment| moment.used_memory);
    parts.extend(used.zip(window.limit()).map(|(used, limit)| {
        let (used, limit) = (bytes(used as f64), bytes(limit as f64));
        format!("memory was {used} of {limit} in the end")
    }));
    parts
}

fn throughput(burst: &Burst) -> Option<String> {
    let slowest = burst.commands_per_second_slowest?;
    // Where the load before was another one, there is nothing to compare with.
    burst.throughput_ratio()?;
    let before = burst.commands_per_second_before?;
    (slowest < before).then(|| {
        let (before, slowest) = (count(before), count(slowest));
        format!("commands fell from {before} to {slowest} a second")
    })
}

fn reclaim(burst: &Burst) -> Option<String> {
    let reclaimed = burst.reclaimed().filter(|_| !burst.reclaim.is_zero())?;
    let (reclaimed, length) = (
        bytes(reclaimed as f64),
        seconds(burst.reclaim.as_secs_f64()),
    );
    Some(format!("then memory fell by {reclaimed} in {length}"))
}
