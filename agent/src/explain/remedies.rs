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
/// `cargo xtask lab remedy --remedy lazyfree`.
const LAZYFREE: &str = "cargo xtask lab remedy --remedy lazyfree: a hash of 230 MiB was evicted by a call of 1,467 ms without it, and no call took 20 ms with it; highest latency 1,707 ms and 140 ms";
/// The effort that the lab tried first.
const MORE_EFFORT: u64 = 5;

/// Returns the remedies for these causes that are known to work.
pub fn known(window: &Window<'_>, account: &Account, causes: &[Cause]) -> Vec<Remedy> {
    let of = |cause: &Cause| match cause.kind {
        CauseKind::ClientBuffers => against_client_buffers(window, account),
        CauseKind::ExpiryBehind => against_expiry(window),
        CauseKind::BigKey => vec![against_big_key(cause)],
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
    let grew = account.rise_before.filter(|rise| *rise > 0.0);
    let more = grew.map_or_else(String::new, |rise| {
        format!(
            ", and by more, as memory still grew by {} a second",
            bytes(rise)
        )
    });
    let ttl = Remedy {
        against: CauseKind::ClientBuffers,
        what: format!(
            "Shorten TTLs until used memory peaks below {} ({:.0} % of the limit): by {:.0} % at least{more}",
            bytes(below as f64),
            (100.0 * below as f64 / limit as f64).floor(),
            (100.0 * missing as f64 / limit as f64).ceil()
        ),
        evidence: room(account, missing),
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

fn against_big_key(cause: &Cause) -> Remedy {
    Remedy {
        against: CauseKind::BigKey,
        what: "Set lazyfree-lazy-eviction to yes, so that another thread frees large keys"
            .to_owned(),
        evidence: vec![format!("{}.", cause.summary)],
        shown_by: LAZYFREE,
    }
}

fn against_expiry(window: &Window<'_>) -> Vec<Remedy> {
    let effort = window.record.configuration.active_expire_effort;
    if effort.is_some_and(|effort| effort >= MORE_EFFORT) {
        return Vec::new();
    }
    let is = effort.map_or_else(String::new, |effort| format!(" (it is {effort})"));
    let calm = seconds(window.calm_length().as_secs_f64());
    vec![Remedy {
        against: CauseKind::ExpiryBehind,
        what: format!(
            "Set active-expire-effort to {MORE_EFFORT}{is}, and watch the latency of commands"
        ),
        evidence: vec![format!("Expiry was behind in the {calm} before.")],
        shown_by: EFFORT,
    }]
}

/// Rounds up to whole MiB.
fn whole_mebibytes(size: u64) -> u64 {
    size.div_ceil(1 << 20) << 20
}
