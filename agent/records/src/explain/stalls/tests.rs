//! Tests what is said about stalls that evictions did not cause, in made-up records.

use std::time::Duration;

use evictscope_telemetry::{CommandShare, CommandSpan, Moment, StallCause};

use crate::explain::tests::{MIB, change_moments, kinds};
use crate::explain::{CauseKind, Explanation, explain};
use crate::fixture::burst_record;
use crate::{Occasion, Record};

/// Returns the record of a stall of 5.6 s in 7 s with this cause, in which nothing was evicted. Changes each moment by
/// its seconds since the beginning.
fn stall(by: StallCause, change: impl Fn(f64, &mut Moment)) -> Record {
    let mut record = burst_record();
    record.occasion = Occasion::Stall;
    record.burst = None;
    record.ended_us = record.began_us + 7_000_000;
    record.slowest.clear();
    change_moments(&mut record, |at, moment| {
        moment.evicted_keys = Some(0);
        moment.evicting_calls = 0;
        moment.evicting = Duration::ZERO;
        moment.stalled_by = moment.stalled_by.map(|_| by);
        change(at, moment);
    });
    record
}

fn explained(by: StallCause, change: impl Fn(f64, &mut Moment)) -> Explanation {
    explain(&stall(by, change))
}

/// Expires keys at these rates before and in the stall.
fn expiring(before: f64, within: f64) -> impl Fn(f64, &mut Moment) {
    move |at, moment| {
        let keys = before * (60.0 + at.min(0.0)) + within * at.clamp(0.0, 7.0);
        moment.expired_keys = Some(keys as u64);
    }
}

/// Has the main thread wait for a CPU for 40 % of the stall, while a child takes `child` microseconds a second.
fn without_cpu(child: Option<f64>) -> impl Fn(f64, &mut Moment) {
    move |at, moment| {
        moment.waiting = Some(Duration::from_micros((0.4e6 * at.clamp(0.0, 7.0)) as u64));
        let since = at + 1.0;
        moment.child = child.filter(|_| since > 0.0).map(|us| Duration::from_micros((us * since) as u64));
    }
}

#[test]
fn keys_that_expire_at_once_are_counted() {
    let explanation = explained(StallCause::Expire, expiring(100.0, 300_000.0));
    assert_eq!(explanation.why, "2.1M keys expired in 7.0 s, and deleting them held up the main thread.");
    assert_eq!(explanation.help, "Spread the times to live: add a tenth or more of random time to each.");
    // They expire as fast as always, or are too few.
    for change in [expiring(150_000.0, 300_000.0), expiring(1.0, 1_000.0)] {
        assert_eq!(kinds(&stall(StallCause::Expire, change)), []);
    }
}

#[test]
fn commands_are_named_by_the_profile() {
    // Commands stall it for the first three seconds, and for the rest of the profile nothing does.
    let mut record = stall(StallCause::Commands, |at, moment| {
        moment.stalled = Some(Duration::from_micros((1e6 * at.clamp(0.0, 3.0)) as u64));
    });
    let named = |record: &Record| {
        let explanation = explain(record);
        assert_eq!(kinds(record), [CauseKind::Commands]);
        (explanation.why, explanation.causes[0].evidence[0].clone(), explanation.help)
    };
    if let Ok(profile) = &mut record.profile {
        profile.functions[5] = "keysCommand".to_owned();
        let [keys, mget] = &mut profile.stacks[..] else { unreachable!("there are two stacks") };
        keys.at_ms = (0..3_000).step_by(25).collect();
        mget.at_ms = (0..6_000).step_by(100).collect();
    }
    let (why, evidence, help) = named(&record);
    assert_eq!(why, "Commands took the main thread's time: KEYS 80 %, MGET 20 %.");
    assert_eq!(evidence, "Shares are of the profile's 150 samples of these times.");
    assert!(help.contains("Use SCAN instead of KEYS"), "{help}");
    let nameless = "Commands took the main thread's time.";
    let mut few = record.clone();
    if let Ok(profile) = &mut few.profile {
        profile.stacks.iter_mut().for_each(|stack| stack.at_ms.truncate(2));
    }
    let (why, _, help) = named(&few);
    assert_eq!(why, nameless);
    assert!(help.contains("SLOWLOG GET"), "{help}");
    if let Ok(profile) = &mut record.profile {
        profile.began_us += 1_600_000;
    }
    assert_eq!(named(&record).0, nameless, "of less than half of the time");
}

#[test]
fn a_command_that_is_slow_with_a_cpu_of_its_own_is_named_beside_a_neighbour() {
    let told = |change: &dyn Fn(&mut Record)| {
        let mut record = stall(StallCause::Cpu, |at, moment| {
            let stalled = at.clamp(0.0, 7.0);
            moment.waiting = Some(Duration::from_secs_f64(0.4 * stalled));
            moment.cpu = Some(Duration::from_secs_f64(0.6 * stalled));
        });
        change(&mut record);
        (kinds(&record), explain(&record))
    };
    let [neighbour, both] = [vec![CauseKind::NoCpu], vec![CauseKind::NoCpu, CauseKind::Commands]];
    // It has a CPU for six tenths of the time.
    for (us, expected) in [(166_000, &neighbour), (167_000, &both)] {
        let (found, explanation) = told(&|record| {
            with_commands(record, &[], &[("hgetall", 1.0)]);
            record.commands.iter_mut().flat_map(|span| &mut span.commands).for_each(|command| {
                (command.calls, command.us) = (5, 5 * us);
            });
        });
        assert_eq!(&found, expected);
        let says = "HGETALL took 167 ms a call, and had a CPU for some 100 ms of that";
        assert_eq!(explanation.why.contains(says), found == both, "{explanation:#?}");
        assert_eq!(explanation.help.contains("in parts (HSCAN"), found == both, "{explanation:#?}");
    }
    // It has not ended: the profile has samples of it.
    for (samples, ended, expected) in [(4, "ping", &neighbour), (5, "ping", &both), (5, "eval", &neighbour)] {
        let (found, _) = told(&|record| {
            with_commands(record, &[], &[(ended, 0.01)]);
            if let Ok(profile) = &mut record.profile {
                profile.functions[5] = "evalGenericCommand".to_owned();
                profile.stacks.truncate(1);
                profile.stacks[0].at_ms = (0..samples).map(|sample| 1_010 + 20 * sample).collect();
            }
        });
        assert_eq!(&found, expected);
    }
}

/// Adds seconds in which commands took these shares of the time, before the beginning and in the stall.
fn with_commands(record: &mut Record, before: &[(&str, f64)], within: &[(&str, f64)]) {
    record.commands = (-60..7)
        .map(|second: i64| {
            let from_us = record.began_us.saturating_add_signed(second * 1_000_000);
            let (is_stalled, shares) = if second < 0 { (false, before) } else { (true, within) };
            let share = |(name, share): &(&str, f64)| CommandShare {
                name: (*name).to_owned(),
                calls: (share * 10_000.0) as u64,
                us: (share * 1e6) as u64,
            };
            let commands = shares.iter().map(share).collect();
            CommandSpan { from_us, to_us: from_us + 1_000_000, is_stalled, commands, rest: (1, 1_000) }
        })
        .collect();
}

#[test]
fn commands_are_named_by_the_servers_counters_unless_what_ran_has_not_ended() {
    let before = [("get", 0.9)];
    for (cause, within, why, evidence) in [
        (
            StallCause::Commands,
            &[("eval", 0.6), ("hgetall", 0.2), ("ping", 0.05)][..],
            "Commands took the main thread's time: EVAL 71 %, HGETALL 24 %.",
            "Shares are of the 6.0 s that commands took, by the server's own counters. That of EVAL includes the commands that it calls.",
        ),
        // The profile knows better.
        (
            StallCause::Commands,
            &[("config|get", 0.1)],
            "Commands took the main thread's time: MGET 43 %.",
            "Shares are of the profile's ",
        ),
        (
            StallCause::Blocked,
            &[("config|get", 0.1)],
            "The main thread slept elsewhere than in its event loop: it waited for a disk or a lock, or was stopped.",
            "Commands that ended meanwhile: CONFIG|GET 99 %. Shares are of the 707 ms that commands took, by the server's own \
             counters.",
        ),
    ] {
        let mut record = stall(cause, |_, _| {});
        with_commands(&mut record, &before, within);
        let explanation = explain(&record);
        assert_eq!(explanation.why, why);
        let shown = &explanation.causes[0].evidence[0];
        assert!(shown.starts_with(evidence), "{shown}");
    }
}

#[test]
fn a_burst_names_the_command_that_is_called_more_often_in_it() {
    let mut record = burst_record();
    with_commands(&mut record, &[("get", 0.5), ("set", 0.1)], &[("get", 0.4), ("set", 0.4)]);
    let what = explain(&record).what;
    assert!(what.contains("; SET was called 4000 times a second, and 1000 times before it"), "{what}");
    with_commands(&mut record, &[("get", 0.5)], &[("get", 0.4)]);
    assert!(!explain(&record).what.contains("was called"));
}

#[test]
fn a_child_is_blamed_where_it_took_what_the_main_thread_lacked() {
    let why = |child| explained(StallCause::Cpu, without_cpu(child)).why;
    let neighbour = "The main thread waited for a CPU for 40 % of the time: something else ran there, or its CPU quota was used up.";
    assert_eq!(why(None), neighbour);
    assert_eq!(why(Some(1e5)), neighbour);
    assert_eq!(
        why(Some(5e5)),
        "A process that the server had forked, to write an RDB or AOF file, took 4.3 s of CPU time, and the main thread waited \
         for a CPU for 40 % of the time."
    );
    let what = explained(StallCause::Cpu, without_cpu(Some(1e5))).what;
    assert!(what.contains("a process that the server had forked"), "{what}");
}

#[test]
fn a_quota_is_blamed_where_it_was_used_up() {
    let explained = |throttled: f64| {
        explained(StallCause::Cpu, |at, moment| {
            without_cpu(None)(at, moment);
            moment.throttled = Some(Duration::from_micros((throttled * 1e6 * at.clamp(0.0, 7.0)) as u64));
        })
    };
    for (throttled, why, kind, help) in [
        (0.4, "its CPU quota was used up for 2.8 s", CauseKind::Quota, "Raise the CPU quota"),
        (0.0, "something else ran there", CauseKind::NoCpu, "See what else runs there (top"),
        (
            0.1,
            "something else ran there, and its CPU quota was used up for 700 ms",
            CauseKind::NoCpu,
            "See whether a CPU quota",
        ),
    ] {
        let explanation = explained(throttled);
        let why = format!("The main thread waited for a CPU for 40 % of the time: {why}.");
        assert_eq!(explanation.why, why);
        assert_eq!(explanation.causes.first().map(|cause| cause.kind), Some(kind));
        assert!(explanation.help.contains(help), "{}", explanation.help);
    }
}

#[test]
fn a_stall_has_the_cause_of_most_of_it() {
    assert_eq!(kinds(&stall(StallCause::Blocked, |_, _| {})), [CauseKind::Blocked]);
    assert_eq!(kinds(&stall(StallCause::Unknown, |_, _| {})), []);
    // The causes take turns.
    let mixed = stall(StallCause::Blocked, |at, moment| {
        let by = [StallCause::Blocked, StallCause::Unknown, StallCause::Eviction];
        moment.stalled_by = moment.stalled_by.and(by.get((at * 50.0).max(0.0) as usize % 3).copied());
    });
    assert_eq!(kinds(&mixed), []);
}

#[test]
fn swollen_buffers_are_told_by_class() {
    let mut record = stall(StallCause::Unknown, |at, moment| {
        moment.stalled = Some(Duration::ZERO);
        if let Some(buffers) = &mut moment.client_buffers {
            buffers.normal = MIB;
            buffers.pubsub = (at.clamp(0.0, 7.0) * 20.0) as u64 * MIB;
        }
    });
    record.occasion = Occasion::Buffers;
    let explanation = explain(&record);
    assert_eq!(explanation.why, "Client buffers of subscribers held up to 141 MiB, 43 % of maxmemory.");
    assert!(explanation.help.contains("client-output-buffer-limit pubsub"), "{}", explanation.help);
}

#[test]
fn refused_commands_are_counted() {
    let mut record = stall(StallCause::Unknown, |at, moment| {
        moment.stalled = Some(Duration::ZERO);
        moment.evicting_calls = (86e3 * (at + 60.0)) as u64;
        moment.refused = Some((10.0 * at.clamp(0.0, 7.0)) as u64);
    });
    record.occasion = Occasion::Refused;
    record.configuration.maxmemory_policy = Some("noeviction".to_owned());
    let explanation = explain(&record);
    assert!(explanation.what.starts_with("70 commands were refused in 7.0 s;"), "{}", explanation.what);
    assert_eq!(
        explanation.why,
        "Memory was over its limit and no key could be evicted: the policy noeviction forbids it."
    );
    assert!(explanation.help.contains("Raise maxmemory"), "{}", explanation.help);
}
