//! Finds what took the main thread's time while clients were stalled, if not evicting calls.

use evictscope_telemetry::StallCause;

use super::commands::Commands;
use super::finding::{Finding, finding};
use super::window::{Window, rate};
use super::{CauseKind, WAITED};
use crate::text::{count, seconds};

/// A shorter stall is not explained by itself: it takes ten looks to tell its cause.
const LEAST_STALL_US: u64 = 500_000;
/// Keys expire at once if they do so this many times as fast as before.
const AT_ONCE: f64 = 3.0;
/// Fewer keys hold up nobody: a cycle deletes more in its 25 ms.
const LEAST_KEYS: u64 = 10_000;
/// What took this share of the time in which the main thread had no CPU is the reason.
const MOST: f64 = 0.5;

/// Finds the cause of most of the time for which clients were stalled, and commands that are slow with a CPU of their
/// own, too.
pub fn found(window: &Window<'_>) -> Vec<Finding> {
    let Some(main) = most(window) else { return Vec::new() };
    let is_of_cpu = matches!(main.1.kind, CauseKind::NoCpu | CauseKind::Quota | CauseKind::Fork);
    let slow = is_of_cpu.then(|| Commands::of(window)).and_then(|commands| {
        let summary = format!("Commands are slow whoever else wants the CPU: {}", commands.slow()?);
        finding(CauseKind::Commands, f64::MAX, summary, vec![commands.shares()])
    });
    Vec::from_iter([main].into_iter().chain(slow))
}

fn most(window: &Window<'_>) -> Option<Finding> {
    let by = window.stalled_by();
    let all = by.iter().fold(0, |sum: u64, (_, us)| sum.saturating_add(*us));
    let (cause, stalled_us) = *by.first()?;
    if stalled_us < LEAST_STALL_US || stalled_us.saturating_mul(2) < all {
        return None;
    }
    let stalled = seconds(stalled_us as f64 / 1e6);
    let (kind, summary, mut evidence) = match cause {
        StallCause::Expire => expired(window)?,
        StallCause::Commands => commands(window),
        StallCause::Cpu => no_cpu(window),
        StallCause::Blocked => {
            let summary = "The main thread slept elsewhere than in its event loop: it waited for a disk or a lock, or was stopped";
            (CauseKind::Blocked, summary.to_owned(), Vec::new())
        }
        StallCause::Eviction | StallCause::Unknown => return None,
    };
    let counted = Commands::counted(window);
    let named = counted.named();
    if cause != StallCause::Commands && !named.is_empty() {
        evidence.push(format!("Commands that ended meanwhile: {named}. {}", counted.shares()));
    }
    evidence.push(format!("Of the time in which clients were stalled, this took most for {stalled}."));
    finding(kind, f64::MAX, summary, evidence)
}

type Found = (CauseKind, String, Vec<String>);

fn expired(window: &Window<'_>) -> Option<Found> {
    let keys = window.grown(|moment| moment.expired_keys);
    let keys = keys.filter(|keys| *keys >= LEAST_KEYS)?;
    let within = keys as f64 / window.seconds();
    let before = rate(window.calm, |moment| moment.expired_keys).filter(|_| window.has_calm());
    if before.is_some_and(|before| within < AT_ONCE * before) {
        return None;
    }
    let summary = format!(
        "{} keys expired in {}, and deleting them held up the main thread",
        count(keys as f64),
        seconds(window.seconds())
    );
    let before = before.map(|before| {
        let calm = seconds(window.calm_length().as_secs_f64());
        format!("In the {calm} before, {} keys expired a second.", count(before))
    });
    Some((CauseKind::ExpiredTogether, summary, Vec::from_iter(before)))
}

fn commands(window: &Window<'_>) -> Found {
    let commands = Commands::of(window);
    let named = commands.named();
    let mut summary = "Commands took the main thread's time".to_owned();
    if !named.is_empty() {
        summary += &format!(": {named}");
    }
    (CauseKind::Commands, summary, vec![commands.shares()])
}

fn no_cpu(window: &Window<'_>) -> Found {
    let share = window.waiting_share().filter(|share| *share >= WAITED);
    let time = share.map_or_else(
        || "while clients were stalled".to_owned(),
        |share| format!("for {:.0} % of the time", 100.0 * share),
    );
    let waited_us = window.grown_us(|moment| moment.waiting).unwrap_or(u64::MAX);
    let took = |us: &u64| *us as f64 >= MOST * waited_us as f64;
    if let Some(us) = window.child_us().filter(took) {
        let took = seconds(us as f64 / 1e6);
        let summary = format!(
            "A process that the server had forked, to write an RDB or AOF file, took {took} of CPU time, and the main thread waited for a CPU {time}"
        );
        return (CauseKind::Fork, summary, Vec::new());
    }
    let kind = if is_throttled(window) == Some(true) { CauseKind::Quota } else { CauseKind::NoCpu };
    let why = who_had_it(window);
    (kind, format!("The main thread waited for a CPU {time}: {why}"), Vec::new())
}

/// Returns whether the main thread's quota was used up for most of the time in which it had no CPU; `None` if none is
/// known.
fn is_throttled(window: &Window<'_>) -> Option<bool> {
    let throttled = window.throttled_us()? as f64;
    let waited = window.grown_us(|moment| moment.waiting)? as f64;
    Some(throttled >= MOST * waited)
}

/// Says why the main thread had no CPU, after a colon.
pub fn who_had_it(window: &Window<'_>) -> String {
    let (other, quota) = ("something else ran there", "its CPU quota was used up");
    let time = window.throttled_us().filter(|us| *us > 0).map(|us| seconds(us as f64 / 1e6));
    match (is_throttled(window), time) {
        (Some(true), Some(time)) => format!("{quota} for {time}"),
        (Some(false), None) => other.to_owned(),
        (Some(false), Some(time)) => format!("{other}, and {quota} for {time}"),
        _ => format!("{other}, or {quota}"),
    }
}

#[cfg(test)]
mod tests;
