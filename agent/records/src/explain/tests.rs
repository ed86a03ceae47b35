//! Tests which causes are found in records of the lab, in the made-up one, and in variants of them.

use std::path::Path;
use std::time::Duration;

use evictscope_model::answers::{PeerCounts, PeersSeen};
use evictscope_telemetry::{Burst, CallResult, MemoryPart, MemoryParts, Moment};

use super::{CauseKind, explain};
use crate::fixture::burst_record;
use crate::text::size;
use crate::{Ending, Occasion, Record, RecordedPeers, read_record};

pub const MIB: u64 = 1 << 20;

pub fn kinds(record: &Record) -> Vec<CauseKind> {
    explain(record).causes.into_iter().map(|cause| cause.kind).collect()
}

/// Reads the record of a lab scenario, without the profile and some moments. Other work ran on that machine.
fn real(name: &str) -> Record {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/explain/testdata");
    read_record(&testdata.join(format!("{name}.json.gz"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the record of a server that has to evict, but may not.
fn nothing_to_evict() -> Record {
    let mut record = burst_record();
    record.configuration.maxmemory_policy = Some("noeviction".to_owned());
    record.burst = None;
    change_moments(&mut record, |_, moment| {
        moment.evicted_keys = Some(0);
        moment.client_buffers = None;
    });
    for call in &mut record.slowest {
        call.result = CallResult::Fail;
    }
    record
}

/// Returns the record of a big key whose call can have done nothing else, by what is known of the server.
pub fn big_key() -> Record {
    let mut record = real("big-key");
    (record.configuration.maxmemory_samples, record.configuration.databases) = (Some(5), Some(16));
    change_moments(&mut record, |_, moment| moment.memory = Some(tracked(0)));
    record
}

/// Returns parts of memory of which is known for how many clients keys are tracked.
pub fn tracked(items: u64) -> MemoryParts {
    let mut parts = MemoryParts::default();
    (parts.tracked_keys, parts.tracked_items) = (Some(items.min(1)), Some(items));
    parts
}

pub fn each() -> [(CauseKind, Record); 10] {
    [
        (CauseKind::ClientBuffers, burst_record()),
        (CauseKind::ClientBuffers, real("client-buffers")),
        (CauseKind::ReplicationBuffers, real("replication-buffers")),
        (CauseKind::ResizedTable, real("resized-table")),
        (CauseKind::ExpiryBehind, real("expiry-behind")),
        (CauseKind::BigKey, big_key()),
        (CauseKind::Data, real("writes")),
        (CauseKind::LoweredLimit, real("lowered-limit")),
        // Without a time limit one call evicts 335,000 keys in 2 s.
        (CauseKind::LoweredLimit, real("lowered-limit-in-one-call")),
        (CauseKind::NothingToEvict, nothing_to_evict()),
    ]
}

/// Changes each moment, by its seconds since the beginning.
pub fn change_moments(record: &mut Record, change: impl Fn(f64, &mut Moment)) {
    let began = record.began_us as f64;
    for moment in &mut record.moments {
        change((moment.unix_us() as f64 - began) / 1e6, moment);
    }
}

pub fn change_burst(record: &mut Record, change: impl Fn(&mut Burst)) {
    record.burst.iter_mut().for_each(change);
}

fn add_memory(moment: &mut Moment, mebibytes: u64) {
    moment.used_memory = moment.used_memory.map(|used| used + mebibytes * MIB);
}

#[test]
fn each_cause_is_found_alone() {
    for (kind, record) in each() {
        assert_eq!(kinds(&record), [kind], "{:#?}", explain(&record));
    }
}

/// Returns the record in which not client buffers grew, but scripts or the tracking table, from some size by another.
fn grown_part(kind: CauseKind, from: u64, by: u64) -> Record {
    let mut record = burst_record();
    change_moments(&mut record, |at, moment| {
        let Some(buffers) = &mut moment.client_buffers else { return };
        // They swell, and shrink in the reclaim.
        let grown = (buffers.normal - 20 * MIB) as f64 / (30 * MIB) as f64;
        let part = from + (by as f64 * if at < 7.0 { grown } else { 1.0 }) as u64;
        let swollen = std::mem::replace(&mut buffers.normal, 20 * MIB) - 20 * MIB;
        moment.used_memory = moment.used_memory.map(|used| used - swollen + part - from);
        let scripts = (kind == CauseKind::Scripts).then_some(part);
        let mut parts = MemoryParts::new(moment.used_memory.unwrap_or_default(), [(MemoryPart::Scripts, scripts)]);
        let tracked = (kind == CauseKind::TrackingTable).then_some(part / 110);
        (parts.tracked_keys, parts.tracked_items) = (tracked, tracked);
        moment.memory = Some(parts);
    });
    record
}

#[test]
fn a_part_that_grew_is_named_and_writes_are_not() {
    let told = explain(&grown_part(CauseKind::Scripts, 2 * MIB, 30 * MIB));
    let grew = "by 30.0 MiB, from 2.0 MiB to 32.0 MiB";
    let why = format!("Scripts grew {grew}, and evictions had to make room for them at the limit of 325 MiB.");
    assert_eq!(told.why, why);
    assert!(told.what.contains(&format!("of memory, scripts grew most, {grew}")), "{}", told.what);
    assert!(told.help.contains("SCRIPT FLUSH ASYNC"), "{}", told.help);
    // It has to be a third of the 30 MiB by which memory fell and of the 16 KiB that were written.
    for kind in [CauseKind::Scripts, CauseKind::TrackingTable] {
        let found = |by| kinds(&grown_part(kind, 2 * MIB, by));
        assert_eq!(found(30 * MIB), [kind]);
        assert_eq!([10 * MIB + MIB / 64, 10 * MIB].map(found), [vec![kind], vec![]]);
    }
}

/// The same record is of writes, until scripts are a third of the room that evictions made: 220,000 keys of 300 bytes.
#[test]
fn writes_are_named_until_a_part_is_a_third_of_what_was_evicted() {
    let with_scripts = |bytes: u64| {
        let mut record = real("writes");
        change_moments(&mut record, |at, moment| {
            // It had been at the limit, so that nothing rose before.
            let used = moment.used_memory.filter(|_| at >= 0.0).unwrap_or(300 * MIB);
            moment.used_memory = Some(used);
            let scripts = (bytes as f64 * (at / 2.0).clamp(0.0, 1.0)) as u64;
            let mut parts = MemoryParts::new(used, [(MemoryPart::Scripts, Some(scripts))]);
            parts.keys = Some(used / 300);
            moment.memory = Some(parts);
        });
        kinds(&record)
    };
    let third = 219_793 * 300 / 3;
    assert_eq!(
        [0, third - MIB / 4, third + MIB / 4].map(with_scripts),
        [CauseKind::Data, CauseKind::Data, CauseKind::Scripts].map(|kind| vec![kind])
    );
}

#[test]
fn which_buffer_of_replication_grew_is_named() {
    let grew = |part: Option<MemoryPart>| {
        let mut record = real("replication-buffers");
        change_moments(&mut record, |_, moment| {
            let used = moment.used_memory.unwrap_or_default();
            moment.memory =
                part.map(|part| MemoryParts::new(used, [(part, moment.client_buffers.map(|buffers| buffers.replica))]));
        });
        explain(&record).why.split(" grew by ").next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        [None, Some(MemoryPart::Backlog), Some(MemoryPart::AofBuffer)].map(grew),
        ["Replicas' buffers", "Replication backlog", "AOF buffer"]
    );
}

#[test]
fn what_holds_memory_is_named_where_no_key_is_left() {
    let mut record = nothing_to_evict();
    change_moments(&mut record, |_, moment| {
        moment.memory = Some(MemoryParts::new(300 * MIB, [(MemoryPart::Scripts, Some(200 * MIB))]));
    });
    let causes = explain(&record).causes;
    assert!(causes[0].evidence.contains(&"Most of the 300 MiB in use: scripts, 200 MiB.".to_owned()), "{causes:?}");
}

#[test]
fn growth_is_mentioned_from_a_hundredth_of_memory_on() {
    let peak = grown_part(CauseKind::Scripts, MIB, 0)
        .moments
        .iter()
        .filter_map(|moment| moment.used_memory)
        .max()
        .unwrap_or_default();
    let is_told = |by| explain(&grown_part(CauseKind::Scripts, MIB, by)).what.contains("scripts grew most");
    assert_eq!([peak / 100 + 1, peak / 100 - 1].map(is_told), [true, false]);
}

#[test]
fn a_time_to_live_is_recommended_where_what_is_evicted_was_long_not_used() {
    let with_idle = |seconds: u32| {
        let mut record = real("writes");
        change_moments(&mut record, |at, moment| {
            moment.candidate_idle_s = Some(seconds + at.abs() as u32);
            let lookups = (at + 1e3) as u64;
            moment.lookups = Some((95 * lookups, 5 * lookups));
        });
        Vec::from_iter(explain(&record).remedies.into_iter().map(|remedy| (remedy.what, remedy.evidence)))
    };
    let found = "95 % of lookups found their key.".to_owned();
    let keep = "Keep memory below the limit:";
    let else_writes = "or more maxmemory; else fewer or smaller writes";
    assert_eq!(
        with_idle(276_480),
        [(
            format!("{keep} a TTL of less than 3 days, renewed at each use, {else_writes}"),
            vec!["What was evicted had not been used for 3 days or longer.".to_owned(), found.clone()]
        )]
    );
    assert_eq!(
        with_idle(40),
        [(
            format!("{keep} shorter TTLs, {else_writes}"),
            vec!["What was evicted had not been used for 40 s or longer.".to_owned(), found]
        )]
    );
}

/// Client buffers swell in any stall, even one of expire cycles: if nothing is evicted, they are no cause.
#[test]
fn without_evictions_what_takes_memory_causes_nothing() {
    let mut record = burst_record();
    record.occasion = Occasion::Stall;
    record.burst = None;
    record.slowest.clear();
    change_moments(&mut record, |_, moment| {
        moment.evicted_keys = Some(0);
        moment.evicting_calls = 0;
        moment.evicting = Duration::ZERO;
    });
    let explanation = explain(&record);
    assert_eq!(explanation.causes, [], "{explanation:#?}");
    assert_eq!(explanation.remedies, []);
}

/// What was usual is what was before the burst, and its peak counts, wherever the record begins.
#[test]
fn a_record_that_begins_inside_a_burst_is_about_all_of_it() {
    let mut record = burst_record();
    record.occasion = Occasion::Stall;
    record.burst = None;
    record.began_us += 5_000_000;
    let explanation = explain(&record);
    assert!(explanation.why.contains("grew by 30.0 MiB, from 20.0 MiB to 50.0 MiB"), "{explanation:#?}");
    assert!(explanation.what.contains("; in 12.0 s, evicting calls took 5.6 s; 280k keys"), "{explanation:#?}");
}

/// A record that was asked for begins and ends at one moment, and is about all that was kept.
#[test]
fn a_record_that_was_asked_for_tells_of_all_its_moments() {
    let mut record = burst_record();
    record.occasion = Occasion::Asked;
    record.burst = None;
    record.ended_us = record.began_us;
    let explanation = explain(&record);
    for told in ["; in 101.9 s, ", "280k keys"] {
        assert!(explanation.what.contains(told), "{}", explanation.what);
    }
    assert!(!explanation.help.contains("Nothing needs"), "{explanation:#?}");
}

/// How the server ended is what the kernel says; what came before is told, and is not said to be why.
#[test]
fn the_end_of_a_server_is_told_with_what_came_before() {
    let mut record = burst_record();
    record.occasion = Occasion::Ended;
    record.burst = None;
    record.moments.retain(|moment| moment.unix_us() <= record.began_us);
    (record.began_us, record.ended_us) = (record.ended_us, record.ended_us);
    change_moments(&mut record, |_, moment| moment.stalled = Some(Duration::ZERO));
    for (ending, what, why, helps) in [
        (
            Ending::Oom { of_group: Some(true) },
            "The server was killed by the OOM killer of its control group, at ",
            "Its control group, or one above it, was at its memory limit.",
            true,
        ),
        (
            Ending::Signal { number: 11 },
            "The server was ended by SIGSEGV, at ",
            "the server's own log has the report of a crash.",
            true,
        ),
        (
            Ending::Exit { status: 0 },
            "The server ended itself, with status 0, at ",
            "It was told to end, or to start again.",
            false,
        ),
    ] {
        record.ending = Some(ending);
        let explained = explain(&record);
        assert!(explained.what.starts_with(what), "{explained:#?}");
        assert!(explained.what.contains("memory was"), "{explained:#?}");
        assert!(explained.why.ends_with(why), "{explained:#?}");
        assert_eq!(explained.help.contains("EvictscopeServerDied"), helps);
        assert_eq!(explained.causes, []);
    }
}

#[test]
fn nothing_is_said_of_a_calm_server() {
    let mut record = burst_record();
    record.occasion = Occasion::Asked;
    change_moments(&mut record, |_, moment| moment.stalled = Some(Duration::ZERO));
    // A burst that is plain, and stalled nothing, is calm too.
    change_burst(&mut record, |burst| burst.stalled = Some(Duration::ZERO));
    for burst in [None, record.burst.clone()] {
        let record = Record { burst, ..record.clone() };
        let explanation = explain(&record);
        assert_eq!(explanation.causes, []);
        assert_eq!(explanation.remedies, []);
        let why = explanation.why;
        assert!(why.contains("nothing to explain"), "{why}");
    }
}

#[test]
fn thin_evidence_is_inconclusive() {
    let undecided = |change: fn(&mut Record), why: &str| {
        let mut record = burst_record();
        change(&mut record);
        let explanation = explain(&record);
        assert_eq!(explanation.causes, [], "{explanation:#?}");
        assert_eq!(explanation.remedies, []);
        assert!(explanation.why.contains(why), "{}", explanation.why);
    };
    let is_calm = |record: &mut Record| {
        change_moments(record, |_, moment| {
            if let Some(buffers) = &mut moment.client_buffers {
                buffers.normal = 20 * MIB;
            }
        });
    };
    undecided(is_calm, "no single cause");
    let begins_late = |record: &mut Record| {
        let from_us = record.began_us - 2_000_000;
        record.moments.retain(|moment| moment.unix_us() > from_us);
    };
    undecided(begins_late, "only 2.0 s without evictions are known");
    undecided(
        |record| change_moments(record, |_, moment| moment.client_buffers = None),
        "client buffers are not known",
    );
    let without_memory = |record: &mut Record| {
        change_moments(record, |_, moment| moment.used_memory = None);
        change_burst(record, |burst| burst.memory_peak = None);
    };
    undecided(without_memory, "used memory is not known");
    undecided(|record| record.moments.clear(), "only 0.0 s without evictions are known");
    // It had evicted until two seconds before.
    assert_eq!(kinds(&real("nothing-decisive")), []);
}

#[test]
fn what_swells_all_the_time_is_no_cause() {
    let swollen = |is_swollen: fn(f64) -> bool| {
        let mut record = burst_record();
        change_moments(&mut record, |at, moment| {
            if at < 0.0
                && is_swollen(at)
                && let Some(buffers) = &mut moment.client_buffers
            {
                buffers.normal = 48 * MIB;
            }
        });
        kinds(&record)
    };
    assert_eq!(swollen(|at| at % 5.0 > -1.0), []);
    // For a fifth of the time: just before, or once before that.
    assert_eq!(swollen(|at| at > -12.0), [CauseKind::ClientBuffers]);
    assert_eq!(swollen(|at| at > -12.0 && at < -0.2), []);
}

/// Returns a look at which so many connections did not read.
pub fn not_reading(record: &Record, silent: u64) -> RecordedPeers {
    let all = PeerCounts { not_reading: silent, ..PeerCounts::default() };
    RecordedPeers { unix_us: record.began_us, seen: PeersSeen { all, worst: Vec::new() } }
}

#[test]
fn clients_that_do_not_read_and_shared_values_are_told_with_their_buffers() {
    let mut record = burst_record();
    for (silent, says) in [(0, "Have fewer connections, or "), (1, "End the clients that do not read (1 connections; ")]
    {
        record.peers = vec![not_reading(&record, silent)];
        assert!(explain(&record).help.contains(says), "{silent}");
    }
    for (used, is_told) in [(50 * MIB, false), (50 * MIB - 1, true)] {
        change_moments(&mut record, |_, moment| moment.used_memory = moment.used_memory.map(|_| used));
        let evidence = explain(&record).causes.into_iter().flat_map(|cause| cause.evidence).collect::<String>();
        assert_eq!(evidence.contains("each reply that points to a value"), is_told, "{evidence}");
    }
}

#[test]
fn a_limit_that_is_lowered_in_steps_is_told_from_the_first_to_the_last() {
    let mut record = real("lowered-limit");
    let limits = Vec::from_iter(record.moments.iter().filter_map(|moment| moment.maxmemory));
    let [from, to] = [limits.iter().max(), limits.iter().min()].map(|limit| limit.copied().unwrap_or_default());
    let one = explain(&record);
    assert!(one.why.contains(&format!("lowered from {} to {}", size(from), size(to))), "{one:#?}");
    let is_lowered = |[before, after]: &[Moment; 2]| [before.maxmemory, after.maxmemory] == [Some(from), Some(to)];
    let Some(last) = record.moments.array_windows().position(is_lowered) else { panic!("{limits:?}") };
    // What is still above all that is used costs nothing.
    record.moments[last].maxmemory = record.moments[last].used_memory.map(|used| used.midpoint(to));
    let two = explain(&record);
    assert!(two.why.contains(&format!("lowered in 2 steps from {} to {}", size(from), size(to))), "{two:#?}");
    assert_eq!([one, two].map(|told| told.help.contains("in small steps, clients")), [true, false]);
}

/// Under a policy for keys with a TTL, the first of them are evicted, and then commands are refused.
#[test]
fn keys_with_a_ttl_are_all_gone_or_some_are_left() {
    for (left, expected) in [(0, CauseKind::NothingToEvict), (1, CauseKind::ClientBuffers)] {
        let mut record = burst_record();
        (record.occasion, record.burst) = (Occasion::Refused, None);
        record.configuration.maxmemory_policy = Some("volatile-ttl".to_owned());
        change_moments(&mut record, |at, moment| {
            moment.refused = Some(u64::from(at > 6.0));
            let expiring = if at < 0.0 { 280_000 } else { left };
            let mut parts = MemoryParts::default();
            parts.expiring_keys = Some(expiring);
            moment.memory = Some(parts);
        });
        assert_eq!(kinds(&record), [expected]);
    }
}

#[test]
fn a_step_that_is_no_table_is_not_taken_for_one() {
    let not_a_table = |change: fn(f64, &mut Moment)| {
        let mut record = real("resized-table");
        // Used memory rises by 32 MiB after a tenth of a second.
        let began = record.began_us as f64 + 0.1e6;
        for moment in &mut record.moments {
            change((moment.unix_us() as f64 - began) / 1e6, moment);
        }
        let found = kinds(&record);
        assert!(!found.contains(&CauseKind::ResizedTable), "{found:?}");
    };
    // Not a power of two.
    not_a_table(|at, moment| add_memory(moment, if at >= 0.0 { 6 } else { 0 }));
    // One of many.
    not_a_table(|at, moment| {
        let is_swollen = (at * 2.0).rem_euclid(2.0) < 1.0;
        add_memory(moment, if is_swollen { 30 } else { 0 });
    });
    // A big request of one client, counted a second later.
    not_a_table(|at, moment| {
        if let Some(buffers) = &mut moment.client_buffers {
            buffers.normal += if (1.0..4.0).contains(&at) { 32 * MIB } else { 0 };
        }
    });
    // The backlog for the first replica.
    not_a_table(|at, moment| {
        if let Some(buffers) = &mut moment.client_buffers {
            buffers.replica = if at > 0.5 { 20_000 } else { 0 };
        }
    });
    // Long before evictions began.
    not_a_table(|at, moment| {
        let is_early = (-10.0..0.0).contains(&at);
        add_memory(moment, if is_early { 32 } else { 0 });
    });
    // Far more than the keys can need.
    not_a_table(|_, moment| moment.used_memory = moment.used_memory.map(|used| used.saturating_sub(510 * MIB)));
}

#[test]
fn a_slow_call_that_is_no_big_key_is_not_taken_for_one() {
    let not_a_key = |change: &dyn Fn(f64, &mut Moment)| {
        let mut record = big_key();
        // The call ends 6.8 s after the beginning, and took 2 s.
        change_moments(&mut record, |at, moment| change(at - 4.8, moment));
        let found = kinds(&record);
        assert!(!found.contains(&CauseKind::BigKey), "{found:?}");
    };
    // Without a time limit, a call evicts many keys.
    not_a_key(&|at, moment| {
        let more = (at.clamp(0.0, 2.0) * 50_000.0) as u64;
        moment.evicted_keys = moment.evicted_keys.map(|keys| keys + more);
    });
    // It waited for a CPU.
    not_a_key(&|at, moment| moment.cpu = Some(Duration::from_micros((1e5 * (at + 60.0)) as u64)));
    // It was one of many.
    let busy = |at: f64, moment: &mut Moment| {
        let more = Duration::from_micros((8e6 * (at / 2.0).clamp(0.0, 1.0)) as u64);
        moment.cpu = moment.cpu.map(|time| time + more);
        more
    };
    not_a_key(&|at, moment| {
        let more = busy(at, moment);
        moment.evicting += more;
    });
    // It was one of many that were not observed.
    not_a_key(&|at, moment| {
        busy(at, moment);
        moment.observed = Duration::from_micros((0.2e6 * (at + 60.0)) as u64);
    });
    // It freed nothing.
    not_a_key(&|_, moment| moment.used_memory = Some(424 * MIB));
}

#[test]
fn a_big_key_is_found_where_its_call_had_to_wait_for_a_cpu() {
    let mut record = big_key();
    // Of the 2 s that the call took, it waited for all but 1.3 s.
    record.slowest.first_mut().into_iter().for_each(|call| call.duration_ns = 1_300_000_000);
    let found = explain(&record);
    assert_eq!(kinds(&record), [CauseKind::BigKey], "{found:#?}");
    assert!(found.why.contains("230 MiB"), "{}", found.why);
}

/// Returns the record of a server with this stale ratio and, by a sample, this share of expired keys, which spends this
/// share of its time in expire cycles.
fn expiring(stale: f64, held: Option<f64>, expiring: f64) -> Record {
    let mut record = burst_record();
    change_moments(&mut record, |at, moment| {
        (moment.stale_ratio, moment.expired_held) = (Some(stale), held);
        moment.expiring = Some(Duration::from_micros((expiring * 1e6 * (at + 60.0)).max(0.0) as u64));
    });
    change_burst(&mut record, |burst| burst.expired_held_before = held);
    record
}

/// Returns a record of a burst of which the server said that this share of keys had expired, and in which expire cycles
/// took this share of the time.
pub fn behind(expired_share: f64, share: f64) -> Record {
    let mut record = expiring(0.6, None, share);
    change_burst(&mut record, |burst| {
        (burst.expired_share_before, burst.stale_ratio_before) = (Some(expired_share), Some(0.6));
    });
    record
}

const BOTH: [CauseKind; 2] = [CauseKind::ExpiryBehind, CauseKind::ClientBuffers];

#[test]
fn expiry_that_was_behind_is_named_beside_client_buffers() {
    let found = |expired_share, share| kinds(&behind(expired_share, share));
    assert_eq!(found(0.58, 0.2), BOTH);
    // Keys live for seconds, and the cycles end early.
    assert_eq!(found(0.58, 0.02), [CauseKind::ClientBuffers]);
    assert_eq!(found(0.05, 0.2), [CauseKind::ClientBuffers]);
}

#[test]
fn expired_keys_that_cycles_do_not_find_are_seen_by_the_sample() {
    let [behind, calm] = [0.68, 0.2].map(|held| expiring(0.17, Some(held), 0.01));
    assert_eq!(kinds(&behind), BOTH);
    let advice = explain(&behind).remedies.iter().map(|remedy| &*remedy.what).collect::<Vec<_>>().join("; ");
    assert!(advice.contains("a client that scans all the time"), "{advice}");
    assert!(!advice.contains("active-expire-effort"), "{advice}");
    assert_eq!(kinds(&calm), [CauseKind::ClientBuffers]);
}
