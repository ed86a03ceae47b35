//! What would help, with sizes. What the lab showed to work for a cause comes first (`docs/TOUR.md` lists it for
//! operators); first aid is what the runbooks say, and was not tried in the lab.

use std::time::Duration;

use evictscope_telemetry::found_share;

use super::account::Account;
use super::commands::Commands;
use super::window::Window;
use super::{Cause, CauseKind, Proof, Remedy, buffers, expiry};
use crate::text::{bytes, round, size};

const TTL: &str = "cargo xtask lab remedy --remedy ttl: 2 bursts without it, none with it";
const ROOM_FOR_TABLE: &str = "cargo xtask lab remedy --remedy maxmemory --cause table, at commit d164b53d: 2 bursts and 35,749 keys evicted without it, none with 128 MiB more for a step of 32 MiB; latencies were not compared, as other work ran";
const SMALL_BACKLOG: &str = "cargo xtask lab remedy --remedy backlog: 127,338 keys evicted and a p99 of the latency of 3,408 ms with a backlog of 64 MiB, none and 11 ms with 1 MiB, while other work ran";
const EFFORT: &str = "cargo xtask lab remedy --remedy effort --rate 3300: expired keys held 278 MiB with effort 1, 51 MiB with 5, 22 MiB with 10";
const LAZYFREE: &str = "cargo xtask lab remedy --remedy lazyfree: a hash of 230 MiB was evicted by a call of 1,467 ms without it, and no call took 20 ms with it; highest latency 1,707 ms and 140 ms";
const OUTPUT_LIMIT: &str = "cargo xtask lab remedy --remedy output-limit: 654,083 keys evicted and a p99 of the latency of 83 ms without it, none and 2 ms with pubsub 1mb 256kb 5";
const SPREAD: &str = "cargo xtask lab remedy --remedy spread: a p99 of the latency of 81 ms with 2 million keys that expired at once, 40 ms with the same over 20 s";
const FEWER_REQUESTS: &str = "cargo xtask lab expire: with requests for 70 % of what the server can answer, 78,000 keys a second expired of 370,000 that were written; with 60 %, 210,000 of 310,000, and commands waited a twentieth as long";
/// A main thread that has work for this share of the time has none to spare, as in telemetry's `cycle/bursts.rs`.
const FULL: f64 = 0.9;
/// The effort that the lab tried first.
const MORE_EFFORT: u32 = 5;

/// Returns the remedies for these causes that are known to work.
pub fn known(window: &Window<'_>, account: &Account, causes: &[Cause]) -> Vec<Remedy> {
    let of = |cause: &Cause| match cause.kind {
        CauseKind::ClientBuffers if buffers::are_of_subscribers(window) => {
            let what = "Limit what slow subscribers may hold (client-output-buffer-limit pubsub), and find them (CLIENT LIST TYPE pubsub)";
            Some(always(cause, what, OUTPUT_LIMIT))
        }
        CauseKind::ClientBuffers => against_client_buffers(window, account),
        CauseKind::ExpiryBehind => against_expiry(window, account),
        CauseKind::ReplicationBuffers => against_replication(account),
        CauseKind::ResizedTable => against_table(window, account),
        CauseKind::BigKey => {
            let what = "Set lazyfree-lazy-eviction to yes, so that another thread frees large keys";
            Some(always(cause, what, LAZYFREE))
        }
        CauseKind::ExpiredTogether => {
            Some(always(cause, "Spread the times to live: add a tenth or more of random time to each", SPREAD))
        }
        _ => None,
    };
    causes.iter().filter_map(of).collect()
}

/// Returns what would help, in words: what the lab showed, then what it did not.
pub fn sentence(causes: &[Cause], remedies: &[Remedy]) -> String {
    let shown = remedies.iter().filter(|remedy| matches!(remedy.proof, Proof::Lab(_)));
    let untried = remedies.iter().filter(|remedy| matches!(remedy.proof, Proof::Runbook(_)));
    let [shown, untried] = [Vec::from_iter(shown), Vec::from_iter(untried)];
    let text = |remedies: &[&Remedy]| super::joined(remedies.iter().map(|remedy| remedy.what.as_str()));
    match (causes, &*shown, &*untried) {
        ([], ..) => "Nothing can be recommended, as the cause is not known.".to_owned(),
        ([cause, ..], [], []) => format!("No remedy is known against {}.", cause.kind),
        (_, shown, []) => text(shown),
        (_, [], untried) => format!("First aid, not tried in the lab: {}", text(untried)),
        (_, shown, untried) => format!("{} First aid, not tried in the lab: {}", text(shown), text(untried)),
    }
}

/// The room that was missing is what client buffers grew by, and what was written meanwhile.
fn against_client_buffers(window: &Window<'_>, account: &Account) -> Option<Remedy> {
    if !window.has_evicted() {
        return None;
    }
    let (grew, written) = (account.client_buffers?.bytes(), account.written?);
    let missing = whole_mebibytes(grew.saturating_add(written));
    let limit = window.limit()?;
    let below = limit.checked_sub(missing).filter(|below| *below > 0)?;
    let rise = account.rise_before.filter(|rise| *rise > 0.0).map(bytes);
    let more = rise.map_or_else(String::new, |rise| format!(", and by more, as memory still grew by {rise} a second"));
    Some(Remedy {
        against: CauseKind::ClientBuffers,
        what: format!(
            "Shorten TTLs until used memory peaks below {} ({:.0} % of the limit): by {:.0} % at least{more}",
            size(below),
            (100.0 * below as f64 / limit as f64).floor(),
            (100.0 * missing as f64 / limit as f64).ceil()
        ),
        evidence: vec![format!(
            "{} were missing: client buffers grew by {}, and writes took {} meanwhile.",
            size(missing),
            size(grew),
            account.written_text(written)
        )],
        proof: Proof::Lab(TTL),
    })
}

/// What exceeds the backlog does not count, so a small one keeps replicas that are behind from filling the limit.
fn against_replication(account: &Account) -> Option<Remedy> {
    let replicas = account.replicas?;
    let not_counted = account.not_counted.map_or(0, |growth| growth.bytes());
    let counted = replicas.bytes().saturating_sub(not_counted);
    // Otherwise they took nothing of the limit.
    (counted > not_counted).then(|| Remedy {
        against: CauseKind::ReplicationBuffers,
        what: "Set repl-backlog-size to 1mb: any further backlog of replicas does not count against maxmemory \
               (but a replica that was away for longer needs all data again)"
            .to_owned(),
        evidence: vec![format!(
            "Replicas were behind by {}, of which {} did not count.",
            size(replicas.to),
            size(not_counted)
        )],
        proof: Proof::Lab(SMALL_BACKLOG),
    })
}

fn against_table(window: &Window<'_>, account: &Account) -> Option<Remedy> {
    let (step, limit) = (account.table?.bytes, window.limit()?);
    let written = account.written?;
    let room = whole_mebibytes(step.saturating_add(written));
    let (more, to) = (size(room), size(limit.saturating_add(room)));
    Some(Remedy {
        against: CauseKind::ResizedTable,
        what: format!("Raise maxmemory by {more} at least, to {to} or more; the next table will take twice the room"),
        evidence: vec![format!(
            "The table took {}, and writes {} while the server evicted.",
            size(step),
            account.written_text(written)
        )],
        proof: Proof::Lab(ROOM_FOR_TABLE),
    })
}

/// Returns a remedy that needs no sizes.
fn always(cause: &Cause, what: &str, run: &'static str) -> Remedy {
    Remedy {
        against: cause.kind,
        what: what.to_owned(),
        evidence: vec![format!("{}.", cause.summary)],
        proof: Proof::Lab(run),
    }
}

/// More effort makes no difference where cycles take little of the time that they may, or, in the lab, if commands
/// alone nearly fill the main thread, more effort made no difference in the lab; fewer commands did.
fn against_expiry(window: &Window<'_>, account: &Account) -> Option<Remedy> {
    let behind = account.expired.filter(|_| !expiry::takes_little(window))?;
    let running = behind.running?;
    // If it had to wait for a CPU, neither its commands nor the effort is the reason.
    behind.waiting.filter(|waiting| *waiting < super::WAITED)?;
    let effort = window.record.configuration.active_expire_effort;
    let (what, run) = if running >= FULL {
        let what = "Take load off the main thread, with a seventh fewer requests or smaller ones: commands leave expiry no time";
        (what.to_owned(), FEWER_REQUESTS)
    } else if effort.is_none_or(|effort| effort < MORE_EFFORT) {
        let is = effort.map_or_else(String::new, |effort| format!(" (it is {effort})"));
        (format!("Set active-expire-effort to {MORE_EFFORT}{is}, and watch the latency of commands"), EFFORT)
    } else {
        return None;
    };
    let (percent, expiring) = (100.0 * running.min(1.0), 100.0 * behind.expiring);
    Some(Remedy {
        against: CauseKind::ExpiryBehind,
        what,
        evidence: vec![format!(
            "The main thread ran for {percent:.0} % of the time before, {expiring:.0} % of the time in expire cycles."
        )],
        proof: Proof::Lab(run),
    })
}

fn whole_mebibytes(size: u64) -> u64 {
    size.div_ceil(1 << 20) << 20
}

/// A key that was used more recently may be asked for again: no TTL that would delete it is recommended.
const LONG_IDLE: Duration = Duration::from_secs(600);

pub fn first_aid(window: &Window<'_>, causes: &[Cause]) -> Vec<Remedy> {
    let remedy = |cause: &Cause| {
        if cause.kind == CauseKind::Data {
            return Some(against_writes(window));
        }
        let (what, runbook) = runbook_against(cause.kind, window)?;
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
fn runbook_against(cause: CauseKind, window: &Window<'_>) -> Option<(&'static str, &'static str)> {
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
        CauseKind::Scripts => (
            "Send few scripts, with arguments in place of values in their texts; SCRIPT FLUSH ASYNC frees those that are kept",
            "EvictscopeBurstsRecurring",
        ),
        CauseKind::TrackingTable => {
            ("Lower tracking-table-max-keys, or have clients track fewer keys", "EvictscopeBurstsRecurring")
        }
        CauseKind::ClusterLinks => (
            "Limit what a slow member of the cluster may hold (cluster-link-sendbuf-limit, Redis 7.0 or later)",
            "EvictscopeBurstsRecurring",
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
