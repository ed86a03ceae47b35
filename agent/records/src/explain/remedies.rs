//! What would help, with sizes. What a run showed to work for a cause comes first (`docs/TOUR.md` lists it for
//! operators); first aid is what the runbooks say, and was not tried.
//!
//! Nothing is advised that is already so, or cannot help, by the configuration in the record. A directive that some
//! versions lack is advised only where it was read.

use std::time::Duration;

use evictscope_telemetry::found_share;

use super::account::Account;
use super::commands::Commands;
use super::slow_calls::SlowCalls;
use super::window::Window;
use super::{Cause, CauseKind, Proof, Remedy, buffers, expiry, loss};
use crate::text::{bytes, round, size};

const TTL: &str = "cargo xtask lab remedy --remedy ttl: 2 bursts without it, none with it";
const ROOM_FOR_TABLE: &str = "cargo xtask lab remedy --remedy maxmemory --cause table, at commit d164b53d: 2 bursts and 35,749 keys evicted without it, none with 128 MiB more for a step of 32 MiB; latencies were not compared, as other work ran";
const SMALL_BACKLOG: &str = "cargo xtask lab remedy --remedy backlog: 127,338 keys evicted and a p99 of the latency of 3,408 ms with a backlog of 64 MiB, none and 11 ms with 1 MiB, while other work ran";
const EFFORT: &str = "cargo xtask lab remedy --remedy effort --rate 3300: expired keys held 278 MiB with effort 1, 51 MiB with 5, 22 MiB with 10";
const FEWER_SAMPLES: &str = "redis-server 7.0.15 with 640,000 keys in 64 databases and 400 writes a second: evicting calls of up to 510 ms and PING of up to 3,081 ms with 10,000 samples, 6 ms and 52 ms with 5";
const FEWER_DATABASES: &str = "redis-server 7.0.15 with 163,840 keys and 5 samples: an evicting call of 29 ms with 16,384 databases, none over 1 ms with 16";
const LESS_TENACITY: &str = "redis-server 7.0.15 with 3 million keys and maxmemory lowered to a tenth of what they took: one evicting call of 6,410 ms with tenacity 100, none over 5 ms with 10";
const SPLIT: &str = "redis-server 7.0.15 with lazyfree-lazy-eviction yes, 3.2 GB of strings evicted at once: calls of up to 45 ms and PING of up to 139 ms with 400 MiB each, 3 ms and 33 ms with 1 MiB";
const TRACKING: &str = "redis-server 7.0.15 with a key that 800,000 connections had tracked before they were closed: an evicting call of 325 ms, none over 1 ms with BCAST; with tracking-table-max-keys 1, 475 ms";
const LAZYFREE: &str = "cargo xtask lab remedy --remedy lazyfree: a hash of 230 MiB was evicted by a call of 1,467 ms without it, and no call took 20 ms with it; highest latency 1,707 ms and 140 ms";
const OUTPUT_LIMIT: &str = "cargo xtask lab remedy --remedy output-limit: 654,083 keys evicted and a p99 of the latency of 83 ms without it, none and 2 ms with pubsub 1mb 256kb 5";
const SPREAD: &str = "cargo xtask lab remedy --remedy spread: a p99 of the latency of 81 ms with 2 million keys that expired at once, 40 ms with the same over 20 s";
const FEWER_REQUESTS: &str = "cargo xtask lab expire: with requests for 70 % of what the server can answer, 78,000 keys a second expired of 370,000 that were written; with 60 %, 210,000 of 310,000, and commands waited a twentieth as long";
const ANY_KEY: &str = "redis-server 7.0.15 at its limit, 40,000 of 300,000 keys with a TTL, 60,000 more without written: 9,695 refused with volatile-ttl, none with allkeys-lru";
const CLIENT_LIMIT: &str = "redis-server 7.0.15 with six clients that do not read what MONITOR sends: 196,224 of 300,000 keys evicted without a limit, 7,542 with 10mb; Valkey 9.1 with 40 that do not read replies: 5,134 of 4,800 and more written, none with 20mb";
const UNPINNED: &str = "redis-server 8.10.2 at its limit with 40 clients that do not read replies of 44 kB each: of 4,800 keys 4,769 evicted, and 383 of 400 writes refused; none after CLIENT KILL; with maxmemory-clients 20mb still 4,741";
/// A main thread that has work for this share of the time has none to spare, as in telemetry's `cycle/bursts.rs`.
const FULL: f64 = 0.9;
/// The effort that the lab tried first.
const MORE_EFFORT: u32 = 5;
/// What Redis has by default.
const SAMPLES: u32 = 5;
const DATABASES: u32 = 16;
const TENACITY: u32 = 10;
/// The smallest that were tried: a backlog, and what subscribers may hold.
const BACKLOG: u64 = 1 << 20;
const OF_SUBSCRIBER: u64 = 1 << 20;
/// The places of classes in `client-output-buffer-limit`.
const REPLICA: usize = 1;
const PUBSUB: usize = 2;

/// What to do, with sizes, the numbers that they rest on, and the run that showed it.
type Shown = (String, String, &'static str);

/// Returns the remedies for these causes that are known to work.
pub fn known(window: &Window<'_>, account: &Account, causes: &[Cause]) -> Vec<Remedy> {
    let of = |cause: &Cause| match cause.kind {
        CauseKind::ClientBuffers if buffers::are_of_subscribers(window) => {
            let is = output_limit(window, PUBSUB);
            let what = format!(
                "Limit what slow subscribers may hold (client-output-buffer-limit pubsub{is}), and find them (CLIENT LIST TYPE pubsub)"
            );
            (!are_limited(window)).then(|| always(cause, &what, OUTPUT_LIMIT))
        }
        CauseKind::ClientBuffers if may_hold_any(window) => {
            let what = "Limit what clients may hold together (maxmemory-clients): those that hold most are ended";
            Some(always(cause, what, CLIENT_LIMIT))
        }
        CauseKind::ClientBuffers => against_client_buffers(window, account),
        CauseKind::ExpiryBehind => against_expiry(window, account),
        CauseKind::ReplicationBuffers => against_replication(window, account),
        CauseKind::ResizedTable => against_table(window, account),
        CauseKind::BigKey => Some(against_big_key(window, cause)),
        CauseKind::Choosing => against_choosing(window, cause),
        CauseKind::Invalidating => {
            let what = "Have clients track by prefix (CLIENT TRACKING ON BCAST), or keep their connections: the tracking table keeps the ids of those that have gone, and tracking-table-max-keys bounds keys alone";
            Some(always(cause, what, TRACKING))
        }
        CauseKind::LoweredLimit => Some(always(cause, &less_tenacity(window)?, LESS_TENACITY)),
        CauseKind::ExpiredTogether => {
            Some(always(cause, "Spread the times to live: add a tenth or more of random time to each", SPREAD))
        }
        CauseKind::Commands => {
            let (what, run) = Commands::of(window).instead(&window.record.configuration)?;
            run.map(|run| always(cause, what, run))
        }
        CauseKind::NothingToEvict => {
            let policy = window.record.configuration.maxmemory_policy.as_deref()?;
            let what = "Set maxmemory-policy to allkeys-lru if keys may be lost, or give more keys a TTL";
            policy.starts_with("volatile-").then(|| always(cause, what, ANY_KEY))
        }
        CauseKind::MemoryStayed => loss::pinning(window).map(|_| {
            always(
                cause,
                "End the clients that do not read their replies (CLIENT LIST: tot-mem; CLIENT KILL)",
                UNPINNED,
            )
        }),
        other => loss::tried(other).map(|(what, run)| always(cause, what, run)),
    };
    let remedy = |cause: &Cause| {
        let (what, evidence, run) = of(cause)?;
        Some(Remedy { against: cause.kind, what, evidence: vec![evidence], proof: Proof::Lab(run) })
    };
    causes.iter().filter_map(remedy).collect()
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

/// Another thread frees what has more than 64 elements. A string is one piece, whatever its size.
fn against_big_key(window: &Window<'_>, cause: &Cause) -> Shown {
    let is_lazy = window.record.configuration.lazyfree_lazy_eviction;
    if is_lazy == Some(true) || SlowCalls::of(window).is_some_and(|slow| slow.are_strings) {
        let what = "Store big strings in pieces, or not at all: they are freed in the main thread, whatever lazyfree-lazy-eviction is";
        return always(cause, what, SPLIT);
    }
    let unless = if is_lazy.is_none() { " (unless it is)" } else { "" };
    let what = format!("Set lazyfree-lazy-eviction to yes{unless}, so that another thread frees large keys");
    always(cause, &what, LAZYFREE)
}

fn against_choosing(window: &Window<'_>, cause: &Cause) -> Option<Shown> {
    let configuration = &window.record.configuration;
    let (samples, databases) = (configuration.maxmemory_samples?, configuration.databases);
    if samples > SAMPLES {
        let what = format!("Set maxmemory-samples to {SAMPLES} (it is {samples})");
        return Some(always(cause, &what, FEWER_SAMPLES));
    }
    let databases = databases.filter(|databases| *databases > DATABASES)?;
    let what = format!(
        "Have keys in fewer databases ({databases} may have some): each of them is sampled for each key that is evicted"
    );
    Some(always(cause, &what, FEWER_DATABASES))
}

/// Says what a client of a class may hold at most, as far as known.
fn output_limit(window: &Window<'_>, class: usize) -> String {
    match window.record.configuration.client_output_buffer_limit.map(|limits| limits[class][0]) {
        Some(0) => "; there is no limit".to_owned(),
        Some(limit) => format!("; it is {}", size(limit)),
        None => String::new(),
    }
}

/// Returns whether no subscriber may hold more than was tried.
fn are_limited(window: &Window<'_>) -> bool {
    let limits = window.record.configuration.client_output_buffer_limit;
    limits.is_some_and(|limits| (1..=OF_SUBSCRIBER).contains(&limits[PUBSUB][0]))
}

/// Returns whether clients that do not read may hold any amount, as far as there is a limit for that.
fn may_hold_any(window: &Window<'_>) -> bool {
    window.not_reading() > 0 && window.record.configuration.maxmemory_clients == Some(0)
}

/// Returns the advice to have evicting calls end sooner, if they may take longer than usual.
fn less_tenacity(window: &Window<'_>) -> Option<String> {
    let tenacity = window.record.configuration.maxmemory_eviction_tenacity.filter(|tenacity| *tenacity > TENACITY)?;
    Some(format!("Set maxmemory-eviction-tenacity to {TENACITY} (it is {tenacity})"))
}

/// Returns the share of keys that have a time to live; `None` if that is not known.
fn expiring_share(window: &Window<'_>) -> Option<f64> {
    let moments = window.calm.iter().chain(window.whole).rev();
    let counted = moments.filter_map(|moment| moment.memory?.expiring_keys.zip(moment.memory?.keys));
    counted.map(|(expiring, keys)| expiring as f64 / keys as f64).find(|share| share.is_finite())
}

/// Returns the room that was missing, bytes: what client buffers grew by, and what was written meanwhile; if some of
/// the limit would be left without it.
fn missing(window: &Window<'_>, account: &Account) -> Option<u64> {
    let (grew, written) = (account.client_buffers?.bytes(), account.written?);
    let missing = whole_mebibytes(grew.saturating_add(written));
    (window.has_evicted() && missing < window.limit()?).then_some(missing)
}

/// Returns whether shorter times to live can make that room: there must be enough keys that have one.
fn can_expire(window: &Window<'_>, missing: u64) -> bool {
    let needed = window.limit().map(|limit| missing as f64 / limit as f64);
    expiring_share(window).zip(needed).is_none_or(|(share, needed)| share >= needed)
}

fn against_client_buffers(window: &Window<'_>, account: &Account) -> Option<Shown> {
    let missing = missing(window, account).filter(|missing| can_expire(window, *missing))?;
    let (grew, written) = (account.client_buffers?.bytes(), account.written?);
    let limit = window.limit()?;
    let below = limit.saturating_sub(missing);
    let rise = account.rise_before.filter(|rise| *rise > 0.0).map(bytes);
    let more = rise.map_or_else(String::new, |rise| format!(", and by more, as memory still grew by {rise} a second"));
    let (percent, by) = ((100.0 * below as f64 / limit as f64).floor(), (100.0 * missing as f64 / limit as f64).ceil());
    let [below, missing, grew] = [below, missing, grew].map(size);
    let written = account.written_text(written);
    Some((
        format!(
            "Shorten TTLs until used memory peaks below {below} ({percent:.0} % of the limit): by {by:.0} % at least{more}"
        ),
        format!("{missing} were missing: client buffers grew by {grew}, and writes took {written} meanwhile."),
        TTL,
    ))
}

/// What exceeds the backlog does not count, so a small one keeps replicas that are behind from filling the limit.
fn against_replication(window: &Window<'_>, account: &Account) -> Option<Shown> {
    let replicas = account.replicas?;
    if window.record.configuration.repl_backlog_size.is_some_and(|bytes| bytes <= BACKLOG) {
        return None;
    }
    let not_counted = account.not_counted.map_or(0, |growth| growth.bytes());
    let counted = replicas.bytes().saturating_sub(not_counted);
    // Otherwise they took nothing of the limit.
    (counted > not_counted).then(|| {
        let what = "Set repl-backlog-size to 1mb: any further backlog of replicas does not count against maxmemory (but a replica that was away for longer needs all data again)";
        let [all, not_counted] = [replicas.to, not_counted].map(size);
        let evidence = format!("Replicas were behind by {all}, of which {not_counted} did not count.");
        (what.to_owned(), evidence, SMALL_BACKLOG)
    })
}

fn against_table(window: &Window<'_>, account: &Account) -> Option<Shown> {
    let (step, limit) = (account.table?.bytes, window.limit()?);
    let written = account.written?;
    let room = whole_mebibytes(step.saturating_add(written));
    let (more, to) = (size(room), size(limit.saturating_add(room)));
    let (step, written) = (size(step), account.written_text(written));
    Some((
        format!("Raise maxmemory by {more} at least, to {to} or more; the next table will take twice the room"),
        format!("The table took {step}, and writes {written} while the server evicted."),
        ROOM_FOR_TABLE,
    ))
}

/// Returns a remedy that needs no sizes.
fn always(cause: &Cause, what: &str, run: &'static str) -> Shown {
    (what.to_owned(), format!("{}.", cause.summary), run)
}

/// More effort makes no difference where cycles take little of the time that they may, or, in the lab, if commands
/// alone nearly fill the main thread, more effort made no difference in the lab; fewer commands did.
fn against_expiry(window: &Window<'_>, account: &Account) -> Option<Shown> {
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
    let evidence = format!(
        "The main thread ran for {percent:.0} % of the time before, {expiring:.0} % of the time in expire cycles."
    );
    Some((what, evidence, run))
}

fn whole_mebibytes(size: u64) -> u64 {
    size.div_ceil(1 << 20) << 20
}

/// A key that was used more recently may be asked for again: no TTL that would delete it is recommended.
const LONG_IDLE: Duration = Duration::from_secs(600);

pub fn first_aid(window: &Window<'_>, account: &Account, causes: &[Cause]) -> Vec<Remedy> {
    let remedy = |cause: &Cause| {
        if cause.kind == CauseKind::Data {
            return Some(against_writes(window));
        }
        let (what, runbook) = runbook_against(cause.kind, window, account)?;
        Some(Remedy { against: cause.kind, what, evidence: Vec::new(), proof: Proof::Runbook(runbook) })
    };
    causes.iter().filter_map(remedy).collect()
}

/// The evidence says how long evicted keys had not been used, and how often lookups found their key, as far as known.
fn against_writes(window: &Window<'_>) -> Remedy {
    let idle = window.evicted_idle();
    let ttl = match idle.filter(|idle| *idle >= LONG_IDLE) {
        Some(idle) => format!("a TTL of less than {}, renewed at each use", round(idle)),
        None if expiring_share(window) == Some(0.0) => "TTLs, which no key has".to_owned(),
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
fn runbook_against(cause: CauseKind, window: &Window<'_>, account: &Account) -> Option<(String, &'static str)> {
    let configuration = &window.record.configuration;
    let (what, runbook) = match cause {
        CauseKind::ClientBuffers if buffers::are_of_subscribers(window) => {
            let what = "Find slow subscribers (CLIENT LIST TYPE pubsub), or have fewer: what each may hold is limited";
            return are_limited(window).then(|| (what.to_owned(), "EvictscopeClientBuffersSwelling"));
        }
        CauseKind::ClientBuffers => {
            let mut what = match window.not_reading() {
                0 => "Have fewer connections, or fewer or smaller requests under way".to_owned(),
                silent => format!("End the clients that do not read ({silent} connections; CLIENT LIST: tot-mem)"),
            };
            if configuration.maxmemory_clients == Some(0) && !may_hold_any(window) {
                what += ", and limit what clients may hold (maxmemory-clients)";
            }
            if let Some(missing) = missing(window, account).filter(|missing| !can_expire(window, *missing)) {
                what +=
                    &format!("; raise maxmemory by {} at least, as too few keys have a TTL to shorten", size(missing));
            }
            return Some((what, "EvictscopeClientBuffersSwelling"));
        }
        CauseKind::ReplicationBuffers => {
            let is = output_limit(window, REPLICA);
            let what = format!(
                "Find the replica that is behind, and limit what it may hold (client-output-buffer-limit replica{is})"
            );
            return Some((what, "EvictscopeClientBuffersSwelling"));
        }
        CauseKind::TrackingTable => {
            let is = match configuration.tracking_table_max_keys {
                Some(0) => " (there is no limit)".to_owned(),
                Some(most) => format!(" (it is {most})"),
                None => String::new(),
            };
            let what = format!("Lower tracking-table-max-keys{is}, or have clients track fewer keys");
            return Some((what, "EvictscopeBurstsRecurring"));
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
        CauseKind::LoweredLimit if account.lowered.is_some_and(|lowered| lowered.steps > 1) => {
            ("Raise maxmemory again: what does not fit is evicted, however small the steps", "EvictscopeStalled")
        }
        CauseKind::LoweredLimit => {
            ("Raise maxmemory again; in small steps, clients wait less, and the same keys go", "EvictscopeStalled")
        }
        CauseKind::NothingToEvict => {
            let may_evict_any =
                configuration.maxmemory_policy.as_deref().is_none_or(|policy| policy.starts_with("allkeys-"));
            let what = "Raise maxmemory if the host has the memory";
            let may_evict_some =
                configuration.maxmemory_policy.as_deref().is_some_and(|policy| policy.starts_with("volatile-"));
            let or = if may_evict_any || may_evict_some {
                ""
            } else {
                ", or set maxmemory-policy to allkeys-lru if keys may be lost"
            };
            return Some((format!("{what}{or}"), "EvictscopeEvictionsFailing"));
        }
        CauseKind::Commands => match Commands::of(window).instead(configuration) {
            Some((_, Some(_))) => return None,
            Some((what, None)) => (what, "EvictscopeClientsWaiting"),
            None => (
                "Find the slow ones (SLOWLOG GET) and split them; if all are fast, there are too many for one server",
                "EvictscopeClientsWaiting",
            ),
        },
        CauseKind::Quota => {
            let what = "Raise the CPU quota (Kubernetes: resources.limits.cpu; systemd: CPUQuota)";
            let or = match configuration.io_threads {
                Some(threads) if threads > 1 => format!(", or set io-threads lower (it is {threads})"),
                _ => String::new(),
            };
            return Some((format!("{what}{or}"), "EvictscopeNoCpu"));
        }
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
        CauseKind::Telling => (
            "Find the replica, subscriber (notify-keyspace-events) or module that is told of each evicted key",
            "EvictscopeEvictionCallSlow",
        ),
        CauseKind::Slept => {
            let look = "Look for values that are to be freed lazily (lazyfree_pending_objects of INFO), and for swapping (si and so in vmstat 1)";
            let what = less_tenacity(window).map_or_else(|| look.to_owned(), |less| format!("{less}. {look}"));
            return Some((what, "EvictscopeEvictionCallSlow"));
        }
        // Runs have shown remedies for these, and the last one has its own above.
        CauseKind::ResizedTable
        | CauseKind::BigKey
        | CauseKind::Choosing
        | CauseKind::Invalidating
        | CauseKind::ExpiredTogether
        | CauseKind::Data => return None,
        other => return loss::first_aid(other, window).map(|(what, runbook)| (what.to_owned(), runbook)),
    };
    Some((what.to_owned(), runbook))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use evictscope_telemetry::MemoryParts;

    use super::super::account::Account;
    use super::super::tests::{behind, change_moments, each};
    use super::super::window::Window;
    use super::super::{Cause, CauseKind};
    use super::{first_aid, known};
    use crate::Configuration;
    use crate::fixture::burst_record;

    /// What a directive may be, as records spell it: not known, not as it is advised, and as it is advised.
    const DIRECTIVES: [(&str, [&str; 3]); 10] = [
        ("maxmemory_policy", ["null", "\"noeviction\"", "\"allkeys-lru\""]),
        ("lazyfree_lazy_eviction", ["null", "false", "true"]),
        ("maxmemory_samples", ["null", "10000", "5"]),
        ("databases", ["null", "64", "16"]),
        ("maxmemory_eviction_tenacity", ["null", "100", "10"]),
        ("maxmemory_clients", ["null", "0", "-5"]),
        ("client_output_buffer_limit", ["null", "[[0,0,0],[0,0,0],[0,0,0]]", "[[0,0,0],[0,0,0],[1048576,262144,5]]"]),
        ("repl_backlog_size", ["null", "67108864", "1048576"]),
        ("active_expire_effort", ["null", "1", "5"]),
        ("io_threads", ["null", "4", "1"]),
    ];

    /// Returns configurations in which all directives but one are the same of these three.
    fn configurations() -> Vec<Configuration> {
        let mut all = Vec::new();
        for (of_others, (changed, values)) in (0..3).flat_map(|others| DIRECTIVES.map(|changed| (others, changed))) {
            all.extend(values.map(|value| {
                let fields = DIRECTIVES.map(|(name, values)| {
                    let value = if name == changed { value } else { values[of_others] };
                    format!("\"{name}\": {value}")
                });
                serde_json::from_str(&format!("{{{}}}", fields.join(","))).unwrap_or_else(|error| panic!("{error}"))
            }));
        }
        all
    }

    /// What an advice has in it, and with which configuration and how many keys that have a TTL it is wrong: it is so
    /// already, cannot help, or the version may lack it.
    type Rule = (&'static str, fn(&Configuration, Option<u64>) -> bool);
    const RULES: [Rule; 12] = [
        ("lazyfree-lazy-eviction to yes", |of, _| of.lazyfree_lazy_eviction == Some(true)),
        ("maxmemory-policy to allkeys", |of, _| {
            of.maxmemory_policy.as_deref().is_none_or(|policy| policy.starts_with("allkeys-"))
        }),
        ("maxmemory-samples to 5", |of, _| of.maxmemory_samples.is_none_or(|samples| samples <= 5)),
        ("fewer databases", |of, _| of.databases.is_none_or(|databases| databases <= 16)),
        ("tenacity to 10", |of, _| of.maxmemory_eviction_tenacity.is_none_or(|tenacity| tenacity <= 10)),
        ("maxmemory-clients", |of, _| of.maxmemory_clients != Some(0)),
        ("limit pubsub", |of, _| of.client_output_buffer_limit.is_some_and(|limits| limits[2][0] == 1 << 20)),
        ("backlog-size to 1mb", |of, _| of.repl_backlog_size.is_some_and(|bytes| bytes <= 1 << 20)),
        ("expire-effort to 5", |of, _| of.active_expire_effort.is_some_and(|effort| effort >= 5)),
        ("io-threads lower", |of, _| of.io_threads.is_none_or(|threads| threads <= 1)),
        ("Shorten TTLs", |_, expiring| expiring == Some(0)),
        ("shorter TTLs", |_, expiring| expiring == Some(0)),
    ];

    /// Returns why an advice is wrong.
    fn wrong(what: &str, of: &Configuration, expiring: Option<u64>) -> Option<&'static str> {
        RULES.into_iter().find_map(|(text, is_wrong)| (what.contains(text) && is_wrong(of, expiring)).then_some(text))
    }

    #[test]
    fn nothing_is_advised_that_is_already_so_or_cannot_help() {
        let mut advised = BTreeSet::new();
        let of_its_own = each().into_iter().map(|(kind, record)| (record, vec![kind]));
        let mut of_subscribers = burst_record();
        change_moments(&mut of_subscribers, |_, moment| {
            moment
                .client_buffers
                .iter_mut()
                .for_each(|buffers| std::mem::swap(&mut buffers.normal, &mut buffers.pubsub));
        });
        let of_all = [behind(0.58, 0.2), of_subscribers].map(|record| (record, CauseKind::ALL.to_vec()));
        for (mut record, kinds) in of_its_own.chain(of_all) {
            for expiring in [None, Some(0), Some(1_000)] {
                let mut memory = MemoryParts::default();
                (memory.keys, memory.expiring_keys) = (Some(1_000), expiring);
                change_moments(&mut record, |_, moment| moment.memory = Some(memory));
                for configuration in configurations() {
                    record.configuration = configuration.clone();
                    let window = Window::of(&record);
                    let account = Account::of(&window);
                    let cause = |kind: &CauseKind| Cause { kind: *kind, summary: String::new(), evidence: Vec::new() };
                    let causes = Vec::from_iter(kinds.iter().map(cause));
                    for remedy in
                        known(&window, &account, &causes).into_iter().chain(first_aid(&window, &account, &causes))
                    {
                        let wrong = wrong(&remedy.what, &configuration, expiring);
                        assert_eq!(wrong, None, "{} {configuration:?} {expiring:?}", remedy.what);
                        advised.insert(remedy.what);
                    }
                }
            }
        }
        // Each of them was advised.
        for (text, _) in RULES {
            assert!(advised.iter().any(|what| what.contains(text)), "{text}");
        }
    }
}
