//! Slow evicting calls: what took their time, decided by the samples of the profile that are of those very calls, or by
//! elimination. If neither decides it, that is said.
//!
//! A call looks at its time limit after 16 keys. One that goes on for far longer did something slow for each of them.

use std::ops::RangeInclusive;
use std::time::Duration;

use evictscope_telemetry::{MemoryParts, Moment, SlowCall, microseconds};

use super::cause_kind::CauseKind;
use super::window::Window;
use crate::profile::Activity;
use crate::text::{count, seconds};

/// What takes less in all is no stall by itself: stalls are judged by the tenth of a second.
const LEAST_DURATION: Duration = Duration::from_millis(100);
/// They took at least this share of the time in evicting calls: as much as a cause has to explain. A record has no more
/// than so many of the slowest: there may be more like them.
const MUCH: f64 = 1.0 / 3.0;
const LISTED: usize = 50;
/// What is slow took this long, and this share of what the slowest took.
const LEAST_SLOW: Duration = Duration::from_millis(10);
const LEAST_OF_SLOWEST: f64 = 0.1;
/// A server with this tenacity stops after 500 µs, but never within 16 keys: what takes far longer is slow for each.
const LIMITED: u32 = 10;
/// Evicting an ordinary key takes some microseconds, 20 with as many samples as Redis takes.
const LEAST_TIME_A_KEY: Duration = Duration::from_millis(1);
/// A call whose thread had a CPU, or waited for one, for less than this share of it slept.
const LEAST_AWAKE: f64 = 0.5;
/// Something took its time if it has this share of the samples in it, and there are at least this many.
const LEAST_SHARE: f64 = 0.5;
const LEAST_SAMPLES: u64 = 4;
/// A big key holds more than this, bytes.
const LEAST_FREED: u64 = 1 << 20;
/// More than a sampled key takes, and the id of a client in the tracking table: 0.05 and 0.3 µs on real servers.
const LONG_FOR_ONE: Duration = Duration::from_micros(1);
/// What takes less than this share of a call does not explain it.
const LITTLE: f64 = 0.1;

/// The functions that tell what an evicting call does, in all versions of Redis and Valkey.
const FUNCTIONS: [(CauseKind, &str); 4] = [
    (
        CauseKind::Choosing,
        "evictionPoolPopulate dictGetSomeKeys dictGetRandomKey dictGetFairRandomKey kvstoreGetFairRandomDictIndex \
         kvstoreGetFairRandomHashtableIndex hashtableSampleEntries hashtableFairRandomEntry",
    ),
    (
        CauseKind::BigKey,
        "dbGenericDelete dbGenericDeleteWithDictIndex dbSyncDelete dbAsyncDelete dictUnlink dictFreeUnlinkedEntry \
         dictTwoPhaseUnlinkFree kvstoreDictTwoPhaseUnlinkFree freeObjAsync decrRefCount",
    ),
    (CauseKind::Invalidating, "trackingInvalidateKey trackingInvalidateKeyRaw"),
    (
        CauseKind::Telling,
        "propagateDeletion propagateExpire notifyKeyspaceEvent flushSlavesOutputBuffers flushReplicasOutputBuffers",
    ),
];
/// Where a value is freed, and the functions that free one of many pieces. A big value without them is a string.
const VALUE: &str = "decrRefCount";
const OF_MANY: &str = "dictRelease dictEmpty _dictClear hashtableRelease hashtableEmpty quicklistRelease zslFree raxFree \
    raxFreeWithCallback raxRecursiveFree freeStream freeHashObject freeSetObject freeListObject freeZsetObject \
    freeStreamObject freeModuleObject";

/// Evicting calls that took long, and long for each key.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowCalls {
    pub calls: u64,
    pub longest: Duration,
    /// The share that they took of all time in evicting calls.
    pub share: f64,
    /// Keys that were evicted in the longest.
    pub keys: u64,
    /// What memory fell by from before the longest to after it, bytes.
    pub freed: u64,
    /// What took most of their time, and what shows it: a sentence. `None` if that is not decided.
    pub work: Option<(CauseKind, String)>,
    /// Whether what they freed were strings.
    pub are_strings: bool,
    /// Samples of the profile in them.
    samples: u64,
}

impl SlowCalls {
    /// Finds them, if there were any.
    pub fn of(window: &Window<'_>) -> Option<Self> {
        let slowest = window.slowest().max_by_key(|call| call.duration_ns)?;
        let longest = Duration::from_nanos(slowest.duration_ns);
        let least = longest.mul_f64(LEAST_OF_SLOWEST).max(LEAST_SLOW);
        let slow = || window.slowest().filter(move |call| u128::from(call.duration_ns) >= least.as_nanos());
        let took = Duration::from_nanos(slow().fold(0, |sum: u64, call| sum.saturating_add(call.duration_ns)));
        let moments = &window.record.moments;
        let (before, after) = around(moments, slowest)?;
        let keys = evicted_within(moments, slowest).or_else(|| rise(before, after, |moment| moment.evicted_keys))?;
        let share = took.as_secs_f64() / evicting(window, took)?.as_secs_f64();
        let is_limited =
            window.record.configuration.maxmemory_eviction_tenacity.is_some_and(|tenacity| tenacity <= LIMITED);
        let a_key = longest.as_secs_f64() / keys.max(1) as f64;
        let is_slow = took >= LEAST_DURATION && (is_limited || a_key >= LEAST_TIME_A_KEY.as_secs_f64());
        if !is_slow || share < MUCH && slow().count() < LISTED {
            return None;
        }
        let mut found = Self {
            calls: slow().count() as u64,
            longest,
            share: share.min(1.0),
            keys,
            freed: before.used_memory?.saturating_sub(after.used_memory?),
            work: None,
            are_strings: false,
            samples: 0,
        };
        let spans = Vec::from_iter(slow().map(|call| span(moments, call)));
        let sampled = found.sampled(window, &spans);
        found.work = found.slept(before, after).or(sampled).or_else(|| found.eliminated(window, before, after));
        Some(found)
    }

    /// Returns whether the longest slept, by the times of the main thread around it.
    fn slept(&self, before: &Moment, after: &Moment) -> Option<(CauseKind, String)> {
        let ran = after.cpu?.checked_sub(before.cpu?)?;
        let awake = ran.saturating_add(after.waiting?.saturating_sub(before.waiting?));
        let took = self.longest.as_secs_f64();
        (awake.as_secs_f64() < LEAST_AWAKE * took).then(|| {
            let awake = seconds(awake.as_secs_f64());
            let freeing = before.memory.and_then(|memory| memory.being_freed).filter(|values| *values > 0);
            let freeing = freeing.map_or_else(String::new, |values| {
                format!(" Before it, {} values were still to be freed lazily.", count(values as f64))
            });
            (CauseKind::Slept, format!("The main thread ran, or waited for a CPU, for {awake} around it.{freeing}"))
        })
    }

    /// Returns what most samples show that were taken in the calls of these times.
    fn sampled(&mut self, window: &Window<'_>, spans: &[RangeInclusive<u64>]) -> Option<(CauseKind, String)> {
        let profile = window.record.profile.as_ref().ok()?;
        let is_within = |at_ms: &&u32| {
            let at_us = profile.began_us.saturating_add(1_000 * u64::from(**at_ms));
            spans.iter().any(|span| span.contains(&at_us))
        };
        let (mut by, mut strings) = ([0_u64; FUNCTIONS.len()], 0);
        for stack in profile.stacks.iter().filter(|stack| stack.activity == Activity::EvictionCall) {
            let samples = stack.at_ms.iter().filter(is_within).count() as u64;
            let names = || stack.frames.iter().filter_map(|frame| profile.functions.get(*frame as usize));
            // The outermost one: to invalidate something frees memory, too.
            let work = names().find_map(|name| FUNCTIONS.iter().position(|(_, names)| is_one(name, names)));
            self.samples += samples;
            if let Some(work) = work {
                by[work] += samples;
            }
            if names().any(|name| is_one(name, VALUE)) && !names().any(|name| is_one(name, OF_MANY)) {
                strings += samples;
            }
        }
        let (work, most) = FUNCTIONS.iter().zip(by).max_by_key(|(_, samples)| *samples)?;
        let is_most = self.samples >= LEAST_SAMPLES && most as f64 >= LEAST_SHARE * self.samples as f64;
        self.are_strings = is_most && work.0 == CauseKind::BigKey && strings as f64 >= LEAST_SHARE * most as f64;
        is_most.then(|| {
            let percent = 100.0 * most as f64 / self.samples as f64;
            (
                work.0,
                format!("The profile has {} samples of {}, {percent:.0} % of them of this.", self.samples, self.name()),
            )
        })
    }

    /// Returns that one call freed what memory fell by, if it can have done nothing else for long.
    fn eliminated(&self, window: &Window<'_>, before: &Moment, after: &Moment) -> Option<(CauseKind, String)> {
        let configuration = &window.record.configuration;
        let policy = configuration.maxmemory_policy.as_deref().filter(|policy| !policy.ends_with("-random"));
        let samples = configuration.maxmemory_samples.zip(configuration.databases).filter(|_| policy.is_some());
        let sampled = samples.map(|(samples, databases)| u64::from(samples) * u64::from(databases))?;
        // Within the call, the table may have been emptied already.
        let earlier = window.record.moments.iter().rev().filter(|moment| moment.at <= before.at);
        let tracked =
            earlier.filter_map(|moment| moment.memory).find_map(|memory: MemoryParts| memory.tracked_items)?;
        let takes_long =
            |one_by_one: u64| one_by_one as f64 * LONG_FOR_ONE.as_secs_f64() >= LITTLE * self.longest.as_secs_f64();
        let told =
            [before, after].map(|moment| moment.client_buffers.map(|buffers| buffers.replica.max(buffers.pubsub)));
        let ran = after.cpu.zip(before.cpu)?;
        let is_left = self.calls == 1
            && self.freed >= LEAST_FREED
            && ran.0.saturating_sub(ran.1).as_secs_f64() >= LEAST_AWAKE * self.longest.as_secs_f64()
            && !takes_long(sampled.saturating_mul(self.keys.max(1)))
            && !takes_long(tracked)
            && told == [Some(0); 2];
        is_left.then(|| {
            let why = format!(
                "By elimination: it ran, looked at {} samples for each key, {} ids of clients were in the tracking table, and there was no replica and no subscriber to tell.",
                count(sampled as f64),
                count(tracked as f64)
            );
            (CauseKind::BigKey, why)
        })
    }

    /// Names the calls.
    pub fn name(&self) -> String {
        let longest = seconds(self.longest.as_secs_f64());
        match self.calls {
            1 => format!("the evicting call of {longest}"),
            calls => format!("{calls} evicting calls of up to {longest}"),
        }
    }

    /// Says that nothing decides what took their time, if so.
    pub fn undecided(&self) -> Option<String> {
        self.work.is_none().then(|| {
            let (name, samples) = (self.name(), self.samples);
            format!("What took the time of {name} is undecided: the profile has {samples} samples of that, and several things are possible")
        })
    }
}

/// Returns whether a function is one of these, or a part or a variant of it, to whose name the compiler adds something.
fn is_one(function: &str, names: &str) -> bool {
    let plain = function.split('.').next();
    names.split_ascii_whitespace().any(|name| Some(name) == plain)
}

/// Returns the time in evicting calls, with an estimate for unobserved ones, and without the time in which they waited
/// for a CPU; at least what was seen.
fn evicting(window: &Window<'_>, least: Duration) -> Option<Duration> {
    let evicting = window.grown_us(|moment| Some(moment.evicting))?;
    let cpu = window.grown_us(|moment| moment.cpu)?;
    let all = (evicting as f64 / window.observed_share()?).min(cpu as f64) / 1e6;
    Some(Duration::try_from_secs_f64(all).ok()?.max(least))
}

/// Returns from when to when a call went on, with all the time in which it may have waited for a CPU, microseconds.
fn span(moments: &[Moment], call: &SlowCall) -> RangeInclusive<u64> {
    let waited = around(moments, call).and_then(|(before, after)| after.waiting?.checked_sub(before.waiting?));
    let took_us = (call.duration_ns / 1_000).saturating_add(waited.map_or(0, microseconds));
    call.unix_us.saturating_sub(took_us)..=call.unix_us
}

/// Returns the last moment before a call and the first one after it.
fn around<'a>(moments: &'a [Moment], call: &SlowCall) -> Option<(&'a Moment, &'a Moment)> {
    let began_us = call.unix_us.checked_sub(call.duration_ns / 1000)?;
    let before = moments.partition_point(|moment| moment.unix_us() <= began_us);
    let after = moments.partition_point(|moment| moment.unix_us() < call.unix_us);
    // It began earlier by the time that it waited for a CPU: while it goes on, no other one ends, and the time in calls
    // grows.
    let within = |[earlier, later]: &&[Moment; 2]| {
        earlier.evicting_calls == later.evicting_calls && earlier.evicting < later.evicting
    };
    let waited = moments.get(..before)?.array_windows().rev().take_while(within).count();
    Some((moments.get(before.checked_sub(1 + waited)?)?, moments.get(after)?))
}

/// Returns the keys that were evicted between the first moment in a call and the last, if they span most of the call.
fn evicted_within(moments: &[Moment], call: &SlowCall) -> Option<u64> {
    let began_us = call.unix_us.checked_sub(call.duration_ns / 1000)?;
    let first = moments.partition_point(|moment| moment.unix_us() < began_us);
    let end = moments.partition_point(|moment| moment.unix_us() <= call.unix_us);
    let (first, last) = (moments.get(first)?, moments.get(end.checked_sub(1)?)?);
    let within_us = last.unix_us().checked_sub(first.unix_us())?;
    let evicted = rise(first, last, |moment| moment.evicted_keys)?;
    // The key itself is counted when it has been freed, which may be after the last moment.
    (within_us * 2 >= call.duration_ns / 1000).then_some(evicted.max(1))
}

fn rise(from: &Moment, to: &Moment, counter: fn(&Moment) -> Option<u64>) -> Option<u64> {
    counter(to)?.checked_sub(counter(from)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evictscope_telemetry::{ClientBuffers, Moment};

    use super::super::CauseKind::{self, BigKey, Choosing, Invalidating, LoweredLimit, Slept, Telling};
    use super::super::tests::{big_key, change_moments, tracked};
    use super::super::window::Window;
    use super::SlowCalls;
    use crate::Record;
    use crate::profile::{Activity, Profile, Stack};

    #[test]
    fn the_alert_on_slow_calls_knows_what_takes_their_time() {
        let causes = [Choosing, BigKey, Invalidating, Telling, Slept, LoweredLimit].map(|cause| cause.to_string());
        let listed = format!("cause=~\"{}\"", causes.join("|"));
        assert!(include_str!("../../../../dashboards/rules/alerts.yaml").contains(&listed), "{listed}");
    }

    fn work(record: &Record) -> Option<CauseKind> {
        Some(SlowCalls::of(&Window::of(record))?.work?.0)
    }

    /// Returns the record with a profile that has so many samples of each function in the call, and one a moment later.
    fn sampled(samples: &[(&str, u64)]) -> Record {
        let mut record = big_key();
        // So that nothing is eliminated.
        record.configuration.maxmemory_samples = None;
        let call = record.slowest.iter().max_by_key(|call| call.duration_ns).copied();
        let call = call.unwrap_or_else(|| unreachable!());
        let stack = |frame, samples, from_ms: u32| Stack {
            frames: vec![0, frame],
            activity: Activity::EvictionCall,
            is_whole: true,
            samples,
            at_ms: (from_ms..).take(samples as usize).collect(),
        };
        let within = samples.iter().zip(1..).map(|((_, samples), frame)| stack(frame, *samples, 10));
        let took_ms = (call.duration_ns / 1_000_000) as u32;
        record.profile = Ok(Profile {
            began_us: call.unix_us - call.duration_ns / 1_000,
            length_us: 3_000_000,
            functions: ["performEvictions"]
                .iter()
                .chain(samples.iter().map(|(name, _)| name))
                .map(|name| (*name).to_owned())
                .collect(),
            stacks: within.chain([stack(0, 9, took_ms + 1)]).collect(),
            ..Profile::default()
        });
        record
    }

    #[test]
    fn most_samples_of_the_very_call_decide() {
        for (function, does) in [
            ("evictionPoolPopulate", CauseKind::Choosing),
            ("dictGetSomeKeys.constprop.0", CauseKind::Choosing),
            ("dbAsyncDelete", CauseKind::BigKey),
            ("trackingInvalidateKey", CauseKind::Invalidating),
            ("propagateDeletion", CauseKind::Telling),
        ] {
            assert_eq!(work(&sampled(&[(function, 10), ("other", 10)])), Some(does), "{function}");
            assert_eq!(work(&sampled(&[(function, 10), ("other", 11)])), None, "{function}");
            assert_eq!(work(&sampled(&[(function, 4)])), Some(does), "{function}");
            assert_eq!(work(&sampled(&[(function, 3)])), None, "{function}");
        }
        // The call has had a CPU for half of the time alone, and the samples are of the other half.
        let mut waited = sampled(&[("dbAsyncDelete", 10)]);
        waited.slowest.iter_mut().for_each(|call| call.duration_ns /= 2);
        assert_eq!(work(&waited), None);
        change_moments(&mut waited, |at, moment| {
            moment.waiting = Some(Duration::from_secs_f64((at + 60.0).max(0.0) / 2.0))
        });
        assert_eq!(work(&waited), Some(CauseKind::BigKey));
        let are_strings =
            |function| SlowCalls::of(&Window::of(&sampled(&[(function, 10)]))).map(|slow| slow.are_strings);
        assert_eq!(["decrRefCount", "dbAsyncDelete"].map(are_strings), [Some(true), Some(false)]);
        let undecided = SlowCalls::of(&Window::of(&sampled(&[("dbAsyncDelete", 3)]))).and_then(|slow| slow.undecided());
        assert!(undecided.is_some_and(|said| said.contains("undecided: the profile has 3 samples of that")));
    }

    #[test]
    fn without_samples_only_what_is_left_decides() {
        let changed = |change: &dyn Fn(&mut Record)| {
            let mut record = big_key();
            change(&mut record);
            work(&record)
        };
        let moments =
            |change: &dyn Fn(&mut Moment)| changed(&|record| change_moments(record, |_, moment| change(moment)));
        // A tenth of the call's 2 s are enough for 200,000 of them.
        let took_ns = big_key().slowest.iter().map(|call| call.duration_ns).max().unwrap_or_default();
        let most = (took_ns / 10_000) as u32;
        for (many, is_decided) in [(most - 1, true), (most + 1, false)] {
            let expected = is_decided.then_some(CauseKind::BigKey);
            let samples = |record: &mut Record| {
                (record.configuration.maxmemory_samples, record.configuration.databases) = (Some(many), Some(1));
            };
            assert_eq!(changed(&samples), expected);
            assert_eq!(moments(&|moment| moment.memory = Some(tracked(many.into()))), expected);
        }
        let with = |replica, pubsub| {
            moments(&|moment| {
                moment.client_buffers = moment.client_buffers.map(|of| ClientBuffers { replica, pubsub, ..of });
            })
        };
        assert_eq!([with(0, 0), with(1, 0), with(0, 1)], [Some(CauseKind::BigKey), None, None]);
        let random = |record: &mut Record| record.configuration.maxmemory_policy = Some("allkeys-random".to_owned());
        assert_eq!(changed(&random), None);
    }

    #[test]
    fn a_call_that_had_no_cpu_and_did_not_wait_for_one_slept() {
        // The thread runs for this share of each second, and waits for a CPU for another.
        let times = |ran: f64, waited: f64| {
            let mut record = big_key();
            let first = record.moments.first().map_or(0, Moment::unix_us);
            let of =
                |share: f64, moment: &Moment| Duration::from_micros((share * (moment.unix_us() - first) as f64) as u64);
            for moment in &mut record.moments {
                (moment.cpu, moment.waiting) = (Some(of(ran, moment)), Some(of(waited, moment)));
            }
            work(&record)
        };
        assert_eq!(times(0.1, 0.0), Some(CauseKind::Slept));
        assert_eq!(times(0.3, 0.1), Some(CauseKind::Slept));
        assert_ne!(times(0.1, 0.6), Some(CauseKind::Slept));
        assert_eq!(times(0.6, 0.0), Some(CauseKind::BigKey));
    }
}
