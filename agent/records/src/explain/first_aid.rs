//! What the runbooks say to do about a cause. It was not tried in the lab.

use std::time::Duration;

use evictscope_telemetry::found_share;

use super::commands::Commands;
use super::window::Window;
use super::{Cause, CauseKind, Proof, Remedy, buffers, expiry};
use crate::text::round;

/// A key that was used more recently may be asked for again: no TTL that would delete it is recommended.
const LONG_IDLE: Duration = Duration::from_secs(600);

/// Returns first aid for these causes.
pub fn of(window: &Window<'_>, causes: &[Cause]) -> Vec<Remedy> {
    let remedy = |cause: &Cause| {
        if cause.kind == CauseKind::Data {
            return Some(against_writes(window));
        }
        let (what, runbook) = against(cause.kind, window)?;
        Some(Remedy {
            against: cause.kind,
            what: what.to_owned(),
            evidence: Vec::new(),
            proof: Proof::Runbook(runbook),
        })
    };
    causes.iter().filter_map(remedy).collect()
}

/// The evidence says how long evicted keys had not been used, and how often lookups found their key, as far as known.
fn against_writes(window: &Window<'_>) -> Remedy {
    let idle = window.evicted_idle();
    let ttl = match idle.filter(|idle| *idle >= LONG_IDLE) {
        Some(idle) => format!("a TTL of less than {}, renewed at each use", round(idle)),
        None => "shorter TTLs".to_owned(),
    };
    let idle = idle.map(|idle| format!("What was evicted had not been used for {} or longer.", round(idle)));
    let found = found_share(window.record.moments.iter().copied())
        .map(|share| format!("{:.0} % of lookups found their key.", 100.0 * share));
    Remedy {
        against: CauseKind::Data,
        what: format!("Keep memory below the limit: {ttl}, or more maxmemory; else fewer or smaller writes"),
        evidence: idle.into_iter().chain(found).collect(),
        proof: Proof::Runbook("EvictscopeBurstsRecurring"),
    }
}

/// Returns what to do, and the runbook that says so.
fn against(cause: CauseKind, window: &Window<'_>) -> Option<(&'static str, &'static str)> {
    Some(match cause {
        CauseKind::ClientBuffers if buffers::are_of_subscribers(window) => return None,
        CauseKind::ClientBuffers => (
            "Have fewer or smaller requests under way, and limit what clients may hold (maxmemory-clients, Redis 7.0 or later)",
            "EvictscopeClientBuffersSwelling",
        ),
        CauseKind::ReplicationBuffers => (
            "Find the replica that is behind, and limit what it may hold (client-output-buffer-limit replica)",
            "EvictscopeClientBuffersSwelling",
        ),
        CauseKind::ExpiryBehind if expiry::takes_little(window) => (
            "Find what keeps expiry from them: a client that scans all the time (CLIENT LIST, cmd=scan), CLIENT PAUSE, or, on a replica, its primary",
            "EvictscopeExpiryFallsBehind",
        ),
        CauseKind::ExpiryBehind => {
            ("Spread the times to live: add a tenth or more of random time to each", "EvictscopeExpiryFallsBehind")
        }
        CauseKind::LoweredLimit => ("Raise maxmemory again, and lower it in small steps", "EvictscopeStalled"),
        CauseKind::NothingToEvict => (
            "Raise maxmemory if the host has the memory, or set maxmemory-policy to allkeys-lru if keys may be lost",
            "EvictscopeEvictionsFailing",
        ),
        CauseKind::Commands => (
            Commands::of(window).instead().unwrap_or(
                "Find the slow ones (SLOWLOG GET) and split them; if all are fast, there are too many for one server",
            ),
            "EvictscopeClientsWaiting",
        ),
        CauseKind::Quota => (
            "Raise the CPU quota (Kubernetes: resources.limits.cpu; systemd: CPUQuota), or set io-threads lower",
            "EvictscopeNoCpu",
        ),
        CauseKind::NoCpu if window.throttled_us() == Some(0) => (
            "See what else runs there (top; on a virtual machine steal, too) and move it, or give Redis a core of its own",
            "EvictscopeNoCpu",
        ),
        CauseKind::NoCpu => (
            "See whether a CPU quota is used up (cpu.stat of the control group) and raise it, or what else runs there (top) and move it",
            "EvictscopeNoCpu",
        ),
        CauseKind::Fork => (
            "Give the host one more CPU, or have RDB and AOF files written on a replica or at quiet hours",
            "EvictscopeClientsWaiting",
        ),
        CauseKind::Blocked => (
            "Look for a slow disk (appendfsync always), for swapping (si and so in vmstat 1), and for what stopped the process",
            "EvictscopeClientsWaiting",
        ),
        // The lab has remedies for these, and the last one has its own above.
        CauseKind::ResizedTable | CauseKind::BigKey | CauseKind::ExpiredTogether | CauseKind::Data => return None,
    })
}
