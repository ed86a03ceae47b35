//! Expiry that was behind: memory was full of keys that had expired.

use super::account::Account;
use super::window::Window;

/// A quarter of the keys with a time to live had expired and were still held: Twitter's figure, and that of the alert
/// EvictscopeExpiryFallsBehind. A cycle by itself puts up with a tenth.
const LEAST_STALE: f64 = 0.25;
/// Expire cycles took this share of the time: a server whose keys live for seconds has a high stale ratio, but its
/// cycles end early. Where they end at their time limits, they took 15 to 24 % in the lab.
const LEAST_EXPIRING: f64 = 0.1;
/// By this the stale ratio times memory was too high in the lab where not all keys had a time to live (146 % too high).
const OVERESTIMATE: f64 = 2.5;
/// What they held would have spared at least this share of the evictions.
const LEAST_SPARED: f64 = 0.5;

/// Expired keys that were held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Behind {
    /// The server's own estimate of the keys with a time to live that had expired, as a share.
    pub stale: f64,
    /// By how much that had risen since the beginning of the calm.
    pub risen: f64,
    /// Of the time before, the share that expire cycles took.
    pub expiring: f64,
    /// What they held at least, estimated, bytes.
    pub held: u64,
}

/// Finds whether expiry was behind, and that mattered.
pub fn found(window: &Window<'_>, account: &Account) -> Option<Behind> {
    let last = window.calm.last().or(window.inside.first())?;
    let (first, until) = match window.has_calm() {
        true => (window.calm.first()?, last),
        false => (window.inside.first()?, window.inside.last()?),
    };
    let stale = last
        .stale_ratio
        .filter(|stale| (LEAST_STALE..=1.0).contains(stale))?;
    let sampled = window.burst().map(|burst| burst.expiry_behind());
    let expiring_us = until.expiring_us?.checked_sub(first.expiring_us?)?;
    let elapsed_us = until
        .unix_us
        .checked_sub(first.unix_us)
        .filter(|elapsed| *elapsed > 0)?;
    let expiring = expiring_us as f64 / elapsed_us as f64;
    let rest = last
        .used_memory?
        .checked_sub(last.client_buffers?.total())?;
    let held = stale * rest as f64 / OVERESTIMATE;
    let is_behind = sampled.is_none_or(|said| said.is_some())
        && expiring >= LEAST_EXPIRING
        && held >= LEAST_SPARED * account.fallen? as f64;
    is_behind.then(|| Behind {
        stale,
        risen: stale - first.stale_ratio.unwrap_or(stale),
        expiring,
        held: held as u64,
    })
}
