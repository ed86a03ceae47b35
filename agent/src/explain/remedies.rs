//! What would help, with sizes. A remedy is here only where a run of the lab showed that it works for the cause;
//! `docs/EXPLANATIONS.md` has the runs, and those that did not help.

use super::account::Account;
use super::window::Window;
use super::{Cause, CauseKind, Remedy};
use crate::live::text::{bytes, seconds};

/// `cargo xtask lab remedy --remedy ttl`.
const TTL: &str = "cargo xtask lab remedy --remedy ttl: 2 bursts without it, none with it";
/// `cargo xtask lab remedy --remedy effort`.
const EFFORT: &str = "cargo xtask lab remedy --remedy effort --rate 3300: expired keys held 278 MiB with effort 1, 51 MiB with 5, 22 MiB with 10";
/// The effort that the lab tried first.
const MORE_EFFORT: u64 = 5;

/// Returns the remedies for these causes that are known to work.
pub fn known(window: &Window<'_>, account: &Account, causes: &[Cause]) -> Vec<Remedy> {
    let of = |cause: &Cause| match cause.kind {
        CauseKind::ClientBuffers => against_client_buffers(window, account),
        CauseKind::ExpiryBehind => against_expiry(window),
        _ => Vec::new(),
    };
    causes.iter().flat_map(of).collect()
}

/// Returns what would help, in words.
pub fn sentence(causes: &[Cause], remedies: &[Remedy]) -> String {
    match (causes.first(), remedies) {
        (None, _) => "Nothing can be recommended, as the cause is not known.".to_owned(),
        (Some(cause), []) => format!("No remedy has been shown to work against {}.", cause.kind),
        (Some(_), remedies) => super::joined(remedies.iter().map(|remedy| remedy.what.as_str())),
    }
}

/// Returns the room that was missing, bytes: what client buffers grew by, and what was written meanwhile.
fn missing(account: &Account) -> Option<u64> {
    let grew = account.client_buffers?.bytes();
    Some(whole_mebibytes(grew.saturating_add(account.written?)))
}

fn against_client_buffers(window: &Window<'_>, account: &Account) -> Vec<Remedy> {
    let Some((missing, limit)) = missing(account).zip(window.limit()) else {
        return Vec::new();
    };
    let Some(below) = limit.checked_sub(missing).filter(|below| *below > 0) else {
        return Vec::new();
    };
    let room = room(account, missing);
    let ttl = Remedy {
        against: CauseKind::ClientBuffers,
        what: format!(
            "Shorten TTLs, by {:.0} % at least, until used memory peaks below {} ({:.0} % of the limit)",
            (100.0 * missing as f64 / limit as f64).ceil(),
            bytes(below as f64),
            (100.0 * below as f64 / limit as f64).floor()
        ),
        evidence: room,
        shown_by: TTL,
    };
    vec![ttl]
}

/// Says what the size of the room that was missing rests on.
fn room(account: &Account, missing: u64) -> Vec<String> {
    let grew = account.client_buffers.map_or(0, |growth| growth.bytes());
    let written = account.written.unwrap_or(0);
    vec![format!(
        "{} were missing: client buffers grew by {}, and writes took about {} meanwhile.",
        bytes(missing as f64),
        bytes(grew as f64),
        bytes(written as f64)
    )]
}

fn against_expiry(window: &Window<'_>) -> Vec<Remedy> {
    let Some(effort) = window.record.configuration.active_expire_effort else {
        return Vec::new();
    };
    if effort >= MORE_EFFORT {
        return Vec::new();
    }
    let calm = window.calm_length().as_secs_f64();
    vec![Remedy {
        against: CauseKind::ExpiryBehind,
        what: format!(
            "Set active-expire-effort to {MORE_EFFORT} (it is {effort}), and watch the latency of commands"
        ),
        evidence: vec![format!(
            "It was {effort} when expiry was behind in the {} before.",
            seconds(calm)
        )],
        shown_by: EFFORT,
    }]
}

/// Rounds up to whole MiB.
fn whole_mebibytes(size: u64) -> u64 {
    size.div_ceil(1 << 20) << 20
}
