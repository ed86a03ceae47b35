//! Expiry that was behind: memory was full of keys that had expired.

use std::time::Duration;

use evictscope_telemetry::{Moment, microseconds};

use super::window::Window;

/// A quarter of the keys with a time to live had expired and were still held: Twitter's figure, and that of the alert
/// EvictscopeExpiryFallsBehind. A cycle itself tolerates a tenth.
const LEAST_STALE: f64 = 0.25;
/// If only the server's estimate is known, expire cycles took this share of the time: a server whose keys live for
/// seconds has a high stale ratio, but its cycles end early. Cycles that end at their time limits took 15 to 24 % in
/// the lab.
const LEAST_EXPIRING: f64 = 0.1;
/// By this factor the stale ratio times memory was too high in the lab if not all keys had a time to live (146 % too
/// high).
const OVERESTIMATE: f64 = 2.5;
/// What expired keys held would have spared at least this share of the evictions.
const LEAST_SPARED: f64 = 0.5;

/// How far back the time in expire cycles is looked at, microseconds.
const RECENT_US: u64 = 10_000_000;
/// A shorter span says too little, microseconds: slow cycles come ten times a second.
const LEAST_SPAN_US: u64 = 2_000_000;

/// Expired keys that were held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behind {
    /// The share of the keys with a time to live that had expired, by a sample, or else by the server's own estimate.
    pub share: f64,
    /// By how much that had risen since the beginning of the calm before.
    pub risen: f64,
    /// The share of the last seconds before that expire cycles took.
    pub expiring: f64,
    /// The share of that time in which the main thread ran; `None` if that is not known.
    pub running: Option<f64>,
    /// The share of that time in which it wanted a CPU and had none; `None` if that is not known.
    pub waiting: Option<f64>,
    /// What they held, estimated, bytes.
    pub held: u64,
}

/// Finds expiry that was behind when the server began to evict, if that mattered; `fallen` is what memory fell by,
/// bytes.
pub fn found(window: &Window<'_>, fallen: u64) -> Option<Behind> {
    let (from, until) = before_evictions(window)?;
    let first = window.calm.first().unwrap_or(from);
    let (sampled, estimated) = (until.expired_held, until.stale_ratio);
    let share = sampled.or(estimated);
    let share = share.filter(|share| (LEAST_STALE..=1.0).contains(share))?;
    let said = window.burst().map(|burst| burst.expiry_behind());
    let elapsed_us = until.unix_us().checked_sub(from.unix_us())?;
    let expiring = share_of(elapsed_us, from.expiring, until.expiring)?;
    let rest = until.used_memory?.checked_sub(until.client_buffers?.total())?;
    let held = share * rest as f64 / OVERESTIMATE;
    let is_behind = said.is_none_or(|said| said.is_some())
        && (sampled.is_some() || expiring >= LEAST_EXPIRING)
        && held >= LEAST_SPARED * fallen as f64;
    is_behind.then(|| Behind {
        share,
        risen: share - sampled.map_or(first.stale_ratio, |_| first.expired_held).unwrap_or(share),
        expiring,
        running: share_of(elapsed_us, from.cpu, until.cpu),
        waiting: share_of(elapsed_us, from.waiting, until.waiting),
        held: held as u64,
    })
}

/// Returns whether something else than the time that they may take keeps expire cycles from what has expired.
pub fn takes_little(window: &Window<'_>) -> bool {
    before_evictions(window)
        .and_then(|(from, until)| share_of(until.unix_us().checked_sub(from.unix_us())?, from.expiring, until.expiring))
        .is_some_and(|share| share < LEAST_EXPIRING)
}

/// Returns the last moment before the server evicted, and the first of the seconds before that. The last of all if it
/// did not evict: a stall by expire cycles begins before that.
fn before_evictions<'a>(window: &Window<'a>) -> Option<(&'a Moment, &'a Moment)> {
    let before = window.calm.last().or(window.inside.first())?;
    let within = window.inside.iter().take_while(|moment| moment.evicting_calls <= before.evicting_calls);
    let until = within.last().unwrap_or(before);
    let begin = until.unix_us().saturating_sub(RECENT_US);
    let from = window.calm.iter().chain(window.inside).find(|moment| moment.unix_us() >= begin)?;
    let is_enough = until.unix_us().saturating_sub(from.unix_us()) >= LEAST_SPAN_US;
    is_enough.then_some((from, until))
}

/// Returns by how much a time grew, as a share of the time that passed.
fn share_of(elapsed_us: u64, from: Option<Duration>, until: Option<Duration>) -> Option<f64> {
    Some(microseconds(until?.checked_sub(from?)?) as f64 / elapsed_us as f64)
}
