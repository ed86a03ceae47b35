//! Keys that were lost, and what took their room: a flush, lazy freeing that was behind, memory above its limit before
//! anything was evicted, or what is in no part of memory.

use evictscope_telemetry::{Exemption, MemoryPart, MemoryParts, Moment};

use super::CauseKind;
use super::finding::{Finding, LEAST_BYTES, finding};
use super::window::{LATELY_US, Window};
use crate::text::{count, seconds, size};

/// A smaller share of all keys is no loss, as in `watch/recorder/losses.rs`.
const SHARE: f64 = 0.1;
/// Fewer keys that go at once may be deleted by any command.
const LEAST_KEYS: u64 = 1_000;
/// Keys that went between two counts that are further apart did not go at once, microseconds.
const AT_ONCE_US: u64 = 3_000_000;
/// Memory that is above the limit for less time may be what one command wrote, microseconds.
const LASTING_US: u64 = 1_000_000;
/// What was being freed held at least this share of the limit, by which memory then fell.
const FELL: f64 = 0.05;
/// Memory did not fall if at least this share of what the lost keys held is still there.
const STAYED: f64 = 0.5;

/// Names these keys, of all that there were at most, if that is known: `3.8M of 4.0M keys (94 %)`.
pub fn of_all(window: &Window<'_>, keys: u64) -> String {
    let counts = || counted(window).filter_map(|(_, parts)| parts.keys);
    let (most, least) = (counts().max(), counts().min().unwrap_or(u64::MAX));
    if let Some(most) = most.filter(|most| keys > *most && least as f64 <= (1.0 - SHARE) * *most as f64) {
        return format!("{} ({} of {} were left)", named(keys), count(least as f64), count(most as f64));
    }
    most.filter(|most| *most > 0 && *most >= keys).map_or_else(|| named(keys), |most| share_of_all(keys, most))
}

fn named(keys: u64) -> String {
    if keys == 1 { "1 key".to_owned() } else { format!("{} keys", count(keys as f64)) }
}

fn share_of_all(keys: u64, all: u64) -> String {
    format!("{} of {} keys ({:.0} %)", count(keys as f64), count(all as f64), 100.0 * keys as f64 / all as f64)
}

/// Says how many keys went that were not evicted, if they were many.
pub fn others(window: &Window<'_>) -> Vec<String> {
    let removed = removed(window).map(|(keys, _)| format!("{keys} were removed at once"));
    let expired = many_expired(window).map(|keys| format!("{} expired", of_all(window, keys)));
    removed.into_iter().chain(expired).collect()
}

/// Returns how many keys expired, if that is a loss.
fn many_expired(window: &Window<'_>) -> Option<u64> {
    let most = counted(window).filter_map(|(_, parts)| parts.keys).max()?;
    window.grown(|moment| moment.expired_keys).filter(|keys| *keys > 0 && *keys as f64 >= SHARE * most as f64)
}

/// Returns the moments at which memory was read, from the last before it on.
fn counted<'a>(window: &Window<'a>) -> impl Iterator<Item = (&'a Moment, MemoryParts)> + use<'a> {
    let before = window.calm.iter().rev().find(|moment| moment.memory.is_some());
    before.into_iter().chain(window.whole).filter_map(|moment| Some((moment, moment.memory?)))
}

/// Names the keys that went at once without being evicted or expired, and the command that removed them, by the
/// server's own counter of it; where no such command ran, by two counts of keys.
fn removed(window: &Window<'_>) -> Option<(String, Option<String>)> {
    let is_flush = |name: &str| name.eq_ignore_ascii_case("flushall") || name.eq_ignore_ascii_case("flushdb");
    let within = window.began_us.saturating_sub(LATELY_US)..=window.evicted_until_us;
    let spans = window.record.commands.iter().filter(|span| within.contains(&span.from_us));
    let flush = spans.rev().find_map(|span| {
        let by = span.commands.iter().find(|command| command.calls > 0 && is_flush(&command.name))?;
        let until = |us: u64| {
            let moments = window.record.moments.iter().take_while(move |moment| moment.unix_us() <= us);
            moments.filter_map(|moment| moment.memory?.keys)
        };
        // The agent may be younger than the span.
        let keys = until(span.from_us).last().or_else(|| until(span.to_us).max()).filter(|keys| *keys > 0)?;
        Some((named(keys), Some(by.name.to_uppercase())))
    });
    let at_once = |[(before, then), (after, now)]: &[(&Moment, MemoryParts); 2]| {
        let grown = |counter: fn(&Moment) -> Option<u64>| counter(after)?.checked_sub(counter(before)?);
        let counted = grown(|moment| moment.evicted_keys)?.checked_add(grown(|moment| moment.expired_keys)?)?;
        let all = then.keys?;
        let gone = all.saturating_sub(now.keys?).saturating_sub(counted);
        let is_near = after.unix_us().saturating_sub(before.unix_us()) <= AT_ONCE_US;
        (is_near && gone >= LEAST_KEYS && gone as f64 >= SHARE * all as f64).then_some((gone, all))
    };
    flush.or_else(|| {
        let (gone, all) = Vec::from_iter(counted(window)).array_windows().filter_map(at_once).max()?;
        Some((share_of_all(gone, all), None))
    })
}

/// Finds what made room for nothing, and so cost the keys.
pub fn found(window: &Window<'_>) -> Vec<Finding> {
    let removed = removed(window);
    let lazy_freeing = lazy_freeing(window, removed.is_some());
    let flushed = removed.and_then(|(keys, by)| flushed(window, &keys, by));
    [flushed, expired(window), lazy_freeing, over_limit(window)].into_iter().flatten().collect()
}

fn flushed(window: &Window<'_>, keys: &str, by: Option<String>) -> Option<Finding> {
    let summary = match by {
        Some(command) => format!("{command} removed {keys}"),
        None if is_replica(window) => {
            format!("{keys} were removed at once, by its primary, or because it took over the data of that")
        }
        None => format!("{keys} were removed at once, by commands"),
    };
    finding(CauseKind::Flushed, 0.0, summary, vec!["They were neither evicted nor expired.".to_owned()])
}

/// Returns whether it is a replica that only its primary tells to remove keys.
fn is_replica(window: &Window<'_>) -> bool {
    window.record.moments.last().is_some_and(|moment| moment.exempt == Some(Exemption::Replica))
}

/// A replica holds expired keys until its primary deletes them, or it is promoted.
fn expired(window: &Window<'_>) -> Option<Finding> {
    let keys = many_expired(window)?;
    let is_replica = |moment: &&Moment| moment.exempt == Some(Exemption::Replica);
    let was_replica = window.calm.iter().chain(window.whole).rev().find(is_replica)?;
    let is_promoted = window.record.moments.last()?.exempt.is_none();
    if !is_promoted || was_replica.unix_us().saturating_add(LATELY_US) < window.began_us {
        return None;
    }
    let keys = of_all(window, keys);
    let summary =
        format!("It was promoted, and {keys} expired, which it had held as a replica until its primary deleted them");
    finding(CauseKind::ExpiredByPromotion, 0.0, summary, Vec::new())
}

/// Values that are freed lazily count until they are gone. Those that evictions have handed over are no more than the
/// keys that were evicted; what is more was there before.
fn lazy_freeing(window: &Window<'_>, are_removed: bool) -> Option<Finding> {
    let evicted_before = counted(window).next()?.0.evicted_keys?;
    let others = counted(window).filter_map(|(moment, parts)| {
        let evicted = moment.evicted_keys?.saturating_sub(evicted_before);
        parts.being_freed.filter(|values| *values > evicted || *values > 0 && are_removed)
    });
    // What a load has replaced is why memory was over its limit.
    let is_loaded = exempt_lately(window) == Some(Exemption::Loading);
    let most = others.max().filter(|_| window.has_evicted() && !is_loaded)?;
    // Whoever deletes a few values lazily, again and again, does not fill the limit with them.
    let (used, limit) = peak(window)?;
    let peaked = window.record.moments.iter().skip_while(|moment| moment.used_memory < Some(used));
    let fell = used - peaked.filter_map(|moment| moment.used_memory).min()?;
    if (fell as f64) < FELL * limit as f64 {
        return None;
    }
    let last = counted(window).last()?.1;
    let summary = format!(
        "Lazy freeing was behind: {} values that had been deleted still took memory, and {} meanwhile",
        count(most as f64),
        if window.evicted_keys() == Some(0) { "no room was made" } else { "evictions made room" }
    );
    let evidence = vec![
        format!("In the end {} were left.", count(last.being_freed? as f64)),
        format!("Memory was {} of {} at most, and fell by {}.", size(used), size(limit), size(fell)),
    ];
    finding(CauseKind::LazyFreeing, f64::MAX, summary, evidence)
}

/// Returns the most memory that was used, and the limit.
fn peak(window: &Window<'_>) -> Option<(u64, u64)> {
    window.whole.iter().filter_map(|moment| moment.used_memory).max().zip(window.limit())
}

/// Returns why it evicted nothing until lately.
fn exempt_lately(window: &Window<'_>) -> Option<Exemption> {
    let from_us = window.began_us.saturating_sub(LATELY_US);
    let lately = window.calm.iter().chain(window.inside).filter(|moment| moment.unix_us() >= from_us);
    lately.filter_map(|moment| moment.exempt).next_back()
}

/// What is above the limit before any call that evicts was not written at the limit.
fn over_limit(window: &Window<'_>) -> Option<Finding> {
    let over = |moment: &Moment| {
        let used = moment.used_memory?.saturating_sub(moment.not_counted?);
        let limit = moment.maxmemory.filter(|limit| *limit > 0)?;
        used.checked_sub(limit).filter(|over| *over >= LEAST_BYTES)
    };
    let before = window.calm.last()?;
    let bytes = over(before).filter(|_| window.has_evicted())?;
    let since = |us: u64| before.unix_us().saturating_sub(us);
    let was_over = window.calm.iter().rev().take_while(|moment| over(moment).is_some()).last()?.unix_us();
    let exempt = exempt_lately(window);
    if exempt.is_none() && since(was_over) < LASTING_US {
        return None;
    }
    let why = match exempt {
        Some(Exemption::Replica) => "as a replica it ignored its limit, and then it was promoted".to_owned(),
        Some(Exemption::Loading) => match counted(window).filter_map(|(_, parts)| parts.being_freed).max() {
            Some(old) if old > 0 => {
                format!("it had loaded its data beside {} values that were still to be freed", count(old as f64))
            }
            _ => "it had loaded its data, which is more".to_owned(),
        },
        None => format!("for {} it evicted nothing", seconds(since(was_over) as f64 / 1e6)),
    };
    let (used, limit) = (size(before.used_memory?), size(before.maxmemory?));
    let summary = format!("Memory was {used} of {limit} before evictions began: {why}");
    finding(CauseKind::OverLimit, bytes as f64, summary, vec![format!("{} had to be freed.", size(bytes))])
}

/// Keys were evicted, and memory did not fall by what they held, nor later: something else holds it. What they held is
/// by the mean size of a key before.
pub fn stayed(window: &Window<'_>) -> Option<Finding> {
    let held = |parts: &MemoryParts| Some(parts.get(MemoryPart::Rest)? as f64 + parts.get(MemoryPart::Tables)? as f64);
    let (_, before) = counted(window).next()?;
    let least = counted(window).filter_map(|(_, parts)| parts.keys).min()?;
    let all = before.keys.filter(|keys| *keys >= LEAST_KEYS)?;
    let gone = all.checked_sub(least)?;
    let mean = held(&before)? / all as f64;
    let since = counted(window).skip_while(|(_, parts)| parts.keys != Some(least));
    // Client buffers are accounted late.
    let stayed = since.filter_map(|(_, parts)| Some(held(&parts)? - parts.keys? as f64 * mean)).reduce(f64::min)?;
    let expected = gone as f64 * mean;
    let evicted = window.evicted_keys()?;
    // Other keys have not taken their places.
    let is_loss = gone as f64 >= SHARE * all as f64 && gone as f64 >= STAYED * evicted as f64;
    if !is_loss || stayed < LEAST_BYTES as f64 || stayed < STAYED * expected {
        return None;
    }
    let [expected, stayed] = [expected, stayed].map(|bytes| size(bytes as u64));
    let silent = pinning(window).map_or_else(String::new, |silent| {
        format!(" ({silent} connections did not read their replies, which may still point to values)")
    });
    let summary = format!(
        "Keys went and memory did not fall: {} were evicted, which had held some {expected}, and {stayed} more than the \
         keys that are left is still held{silent}",
        of_all(window, evicted)
    );
    let holders = "Values that are larger than those that went may hold it, or what is in no part of memory.";
    finding(CauseKind::MemoryStayed, f64::MAX, summary, vec![holders.to_owned()])
}

/// Returns how many connections do not read replies that may still point to values that were evicted. Older versions
/// copy values into replies.
pub fn pinning(window: &Window<'_>) -> Option<u64> {
    let server = &window.record.server;
    let mut version = server.version.as_deref().unwrap_or("99").split('.').filter_map(|part| part.parse().ok());
    let version: (u32, u32) = (version.next()?, version.next().unwrap_or(0));
    let first = if server.product.as_deref() == Some("valkey") { (9, 0) } else { (8, 6) };
    Some(window.not_reading()).filter(|silent| *silent > 0 && version >= first)
}

/// Returns what helped against one of these causes, and the run that showed it: Debian's redis-server 7.0.15 on a busy
/// machine.
pub fn tried(cause: CauseKind) -> Option<(&'static str, &'static str)> {
    Some(match cause {
        CauseKind::LazyFreeing => (
            "Wait until INFO's lazyfree_pending_objects is 0 before new keys are written after FLUSHALL ASYNC or UNLINK",
            "456 MiB of hashes at a limit of 500 MiB, FLUSHALL ASYNC, then 9,740 keys of 50 kB: 6,411 evicted when written at once; 606, for which there was no room, when written after 4.7 s",
        ),
        CauseKind::OverLimit => (
            "Give it the limit that its data needs (maxmemory) before it is promoted, or loads it: the same as its primary's",
            "a replica with 300,000 keys of 87 MiB was promoted: 154,656 evicted in 2 s with a limit of 30 MiB, none with 200 MiB",
        ),
        CauseKind::Scripts => (
            "Send few scripts, with arguments in place of values in their texts; SCRIPT FLUSH ASYNC frees those that are kept",
            "24,540 scripts of 1 kB at a limit of 80 MiB: 88,627 of 250,000 keys evicted; none with one script and ARGV; SCRIPT FLUSH ASYNC freed 32 MiB within 1 s",
        ),
        _ => return None,
    })
}

/// Returns what to do against one of these causes, and the runbook that says so.
pub fn first_aid(cause: CauseKind, window: &Window<'_>) -> Option<(&'static str, &'static str)> {
    Some(match cause {
        CauseKind::Flushed if is_replica(window) => (
            "See what its primary did: what that evicts, flushes or deletes goes here, too",
            "EvictscopeBurstsRecurring",
        ),
        CauseKind::Flushed => (
            "Find who did it (CLIENT LIST, the application's log), and take the right from all who do not need it (ACL SETUSER … -@dangerous)",
            "EvictscopeBurstsRecurring",
        ),
        CauseKind::ExpiredByPromotion => (
            "Find since when its primary had told it nothing (INFO replication before the promotion, the primary's log): it had served these as expired",
            "EvictscopeExpiryFallsBehind",
        ),
        CauseKind::MemoryStayed if pinning(window).is_none() => (
            "See whether values got larger (redis-cli --memkeys), or functions (INFO: used_memory_functions)",
            "EvictscopeBurstsRecurring",
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use evictscope_telemetry::{Exemption, MemoryPart, MemoryParts};

    use super::super::tests::{MIB, change_burst, change_moments, not_reading};
    use super::super::{CauseKind, Explanation, explain};
    use crate::fixture::burst_record;
    use crate::{Occasion, Record};

    const KEYS: u64 = 400_000;
    const OF_KEY: u64 = 700;

    /// How keys went of a server that evicts 280,000 of its 400,000 in 7 s.
    #[derive(Clone, Copy, Default)]
    struct Lost {
        /// Keys that were removed at once after a second.
        removed: u64,
        /// Keys that expired then.
        expired: u64,
        /// Values that were being freed besides those of evicted keys.
        freed_besides: u64,
        /// What was above the limit before, bytes, and why nothing was evicted for it.
        over: u64,
        exempt: Option<Exemption>,
        /// The shares of what evicted keys held that scripts took, and that stays.
        scripts: f64,
        stays: f64,
        /// Keys that take the places of others.
        made: u64,
    }

    fn explained(lost: Lost) -> Explanation {
        explain(&record(lost))
    }

    fn record(lost: Lost) -> Record {
        let mut record = burst_record();
        record.occasion = Occasion::Lost;
        record.burst = None;
        let others = 30 * MIB;
        change_moments(&mut record, |at, moment| {
            let evicted = moment.evicted_keys.unwrap_or_default();
            let then = |keys| if at >= 1.0 { keys } else { 0 };
            moment.expired_keys = Some(then(lost.expired));
            let keys = KEYS - evicted + lost.made * evicted / 280_000 - then(lost.removed + lost.expired);
            let of_evicted = |share: f64| (share * (evicted * OF_KEY) as f64) as u64;
            let scripts = of_evicted(lost.scripts);
            let used = others + keys * OF_KEY + scripts + of_evicted(lost.stays);
            moment.used_memory = Some(used);
            // What evicted keys made room for comes from nowhere else.
            moment.maxmemory = Some(others + KEYS * OF_KEY - lost.over);
            moment.exempt = lost.exempt.filter(|_| at < -0.5);
            moment.stalled = Some(std::time::Duration::ZERO);
            let buffers = 20 * MIB;
            moment.client_buffers.iter_mut().for_each(|clients| clients.normal = buffers);
            let parts = [
                (MemoryPart::Startup, others - buffers),
                (MemoryPart::ClientsNormal, buffers),
                (MemoryPart::Scripts, scripts),
                (MemoryPart::Tables, 0),
            ];
            let mut parts = MemoryParts::new(used, parts.map(|(part, bytes)| (part, Some(bytes))));
            let besides = if at >= 0.0 { lost.freed_besides } else { 0 };
            (parts.keys, parts.being_freed) = (Some(keys), Some(evicted * u64::from(besides > 0) + besides));
            moment.memory = Some(parts);
        });
        record
    }

    /// For each cause, the number that decides it, just below and just above.
    #[test]
    fn each_cause_is_decided_by_one_number() {
        let none = Lost::default();
        let removed = |removed| Lost { removed, ..none };
        let over = |over| Lost { over, ..none };
        let expired = |expired| Lost { expired, exempt: Some(Exemption::Replica), ..none };
        let freed = |freed_besides| Lost { freed_besides, ..none };
        let scripts = |scripts| Lost { scripts, ..none };
        let stays = |stays| Lost { stays, ..none };
        for (kind, below, above, says) in [
            (CauseKind::Flushed, removed(30_000), removed(60_000), "60.0k of 360k keys (17 %) were removed at once, "),
            (
                CauseKind::ExpiredByPromotion,
                expired(39_999),
                expired(40_000),
                "It was promoted, and 40.0k of 400k keys (10 %) expired, ",
            ),
            (CauseKind::LazyFreeing, freed(0), freed(1), "Lazy freeing was behind: "),
            (CauseKind::OverLimit, over(MIB - 1), over(MIB), "before evictions began: for 59.9 s it evicted nothing"),
            (CauseKind::Scripts, scripts(0.2), scripts(0.3), "Scripts grew by 56.1 MiB, from 0 B to 56.1 MiB"),
            (
                CauseKind::MemoryStayed,
                stays(0.45),
                stays(0.55),
                "280k of 400k keys (70 %) were evicted, which had held some 187 MiB, and 103 MiB more",
            ),
            (
                CauseKind::MemoryStayed,
                Lost { made: 141_000, ..stays(0.55) },
                Lost { made: 139_000, ..stays(0.55) },
                "(70 %) were evicted, which had held some 94.1 MiB, and 103 MiB more",
            ),
        ] {
            let found = |lost| Vec::from_iter(explained(lost).causes.iter().map(|cause| cause.kind));
            assert!(!found(below).contains(&kind), "{kind}");
            assert_eq!(found(above), [kind]);
            let explained = explained(above);
            assert!(explained.why.contains(says), "{explained:#?}");
            assert!(explained.what.contains("280k of 400k keys (70 %) were evicted"), "{explained:#?}");
            assert_eq!(explained.remedies.len(), 1, "{explained:#?}");
        }
    }

    #[test]
    fn clients_that_do_not_read_are_told_where_replies_can_point_to_values() {
        for (product, version, silent, may_pin) in [
            ("redis", "8.6.0", 1, true),
            ("redis", "8.6.0", 0, false),
            ("redis", "8.5.9", 1, false),
            ("valkey", "9.0.0", 1, true),
            ("valkey", "8.1.9", 1, false),
        ] {
            let mut record = record(Lost { stays: 0.55, ..Lost::default() });
            (record.server.product, record.server.version) = (Some(product.to_owned()), Some(version.to_owned()));
            record.peers = vec![not_reading(&record, silent)];
            let explained = explain(&record);
            assert_eq!(explained.why.contains("(1 connections did not read"), may_pin, "{explained:#?}");
            assert_eq!(explained.help.contains("CLIENT KILL"), may_pin, "{explained:#?}");
        }
    }

    #[test]
    fn keys_of_a_replica_are_removed_by_its_primary() {
        let mut record = record(Lost { removed: 60_000, ..Lost::default() });
        change_moments(&mut record, |_, moment| moment.exempt = Some(Exemption::Replica));
        let explained = explain(&record);
        assert!(explained.why.contains("by its primary") && !explained.help.contains("ACL"), "{explained:#?}");
    }

    #[test]
    fn a_loss_is_told_by_the_burst_that_had_most_of_it() {
        for (keys, says) in [(140_000, "evictions went on for 7.0 s"), (139_999, "in 12.0 s, evicting calls took")] {
            let mut record = record(Lost::default());
            record.burst = burst_record().burst;
            change_burst(&mut record, |burst| burst.evicted_keys = Some(keys));
            let what = explain(&record).what;
            assert!(what.to_lowercase().contains(says), "{what}");
        }
    }

    #[test]
    fn a_server_that_was_promoted_or_loaded_its_data_was_above_its_limit_before() {
        for (exempt, says) in [
            (Exemption::Replica, "as a replica it ignored its limit, and then it was promoted"),
            (Exemption::Loading, "it had loaded its data, which is more"),
        ] {
            let why = explained(Lost { over: 100 * MIB, exempt: Some(exempt), ..Lost::default() }).why;
            assert!(why.starts_with("Memory was 297 MiB of 197 MiB before") && why.contains(says), "{why}");
        }
        let loaded = Lost { over: 100 * MIB, exempt: Some(Exemption::Loading), freed_besides: 9, ..Lost::default() };
        let why = explained(loaded).why;
        assert!(why.ends_with("values that were still to be freed.") && !why.contains("behind"), "{why}");
    }
}
