//! One reading of a server as a row of values: what phases, bursts, margins, timelines, records and pages are made
//! from.
//!
//! A number that is read from a server is one line of this list, and one place that shows it.

use std::io;
use std::time::Duration;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::ResultKind;
use evictscope_model::Member;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    Candidate, ClientBuffers, EvictionTimes, Exemption, MainThreadTime, MemoryParts, Phase, ServerState, Snapshot,
    StallCause, Waits, microseconds, nanoseconds,
};

/// Client buffers below this many bytes are nothing unusual, as in the alert EvictscopeClientBuffersSwelling.
const MUCH: u64 = 16 << 20;

/// Makes the row from the list of its values. `line` is a value that is estimated between two readings, on the straight
/// line from one to the other; `step` is one that is not. What follows the `=` says where it is read from. Values that
/// are `kept` are in records, which spell times in microseconds, and as `rename` says.
macro_rules! row {
    (
        $(#[$about:meta])*
        row $row:ident of ($snapshot:ident, $state:ident)
        kept { $( $(#[$kept_meta:meta])* $kept_how:ident $kept:ident: $kept_type:ty = $kept_source:expr; )* }
        passing { $( $(#[$meta:meta])* $how:ident $name:ident: $type:ty = $source:expr; )* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct $row {
            /// When it was read: monotonic, until the [`Timeline`](crate::Timeline) that it leaves makes it the time
            /// since 1970.
            #[serde(rename = "unix_us", with = "in_records")]
            pub at: Duration,
            $( $(#[$kept_meta])* #[serde(default, with = "in_records")] pub $kept: $kept_type, )*
            $( $(#[$meta])* #[serde(skip)] pub $name: $type, )*
        }

        impl $row {
            /// Returns what a snapshot says that has just been applied to `state`.
            pub fn new($snapshot: &Snapshot, $state: &ServerState) -> Self {
                Self { at: $snapshot.at, $( $kept: $kept_source, )* $( $name: $source, )* }
            }

            /// Returns the row at `at`, between this one and a later one.
            pub(crate) fn interpolate(&self, later: &Self, at: Duration) -> Self {
                let way = later.at.saturating_sub(self.at).as_secs_f64();
                let gone = at.saturating_sub(self.at).as_secs_f64();
                let share = if way > 0.0 { (gone / way).min(1.0) } else { 1.0 };
                Self {
                    at,
                    $( $kept: $kept_how(&self.$kept, &later.$kept, share), )*
                    $( $name: $how(&self.$name, &later.$name, share), )*
                }
            }
        }

        /// What is kept of it, to the microsecond, but for its own time.
        impl BorshSerialize for $row {
            fn serialize<W: io::Write>(&self, to: &mut W) -> io::Result<()> {
                BorshSerialize::serialize(&nanoseconds(self.at), to)?;
                $( BorshSerialize::serialize(&self.$kept.recorded(), to)?; )*
                Ok(())
            }
        }

        impl BorshDeserialize for $row {
            fn deserialize_reader<R: io::Read>(from: &mut R) -> io::Result<Self> {
                Ok(Self {
                    at: Duration::from_nanos(BorshDeserialize::deserialize_reader(from)?),
                    $( $kept: Recorded::of(BorshDeserialize::deserialize_reader(from)?), )*
                    ..Self::default()
                })
            }
        }
    };
}

row! {
    /// A server at one moment. The agent's counters start when it attaches to the server; the difference between two
    /// moments is what happened between them. A value that is not known is `None`.
    row Moment of (snapshot, state)

    kept {
        /// The phase that it was in, as far as was known then, which its [`Cycle`](crate::Cycle) says; `None` if
        /// evicting calls are not seen.
        step phase: Option<Phase> = None;
        /// Memory tracked by the allocator, bytes.
        line used_memory: Option<u64> = state.member(Member::UsedMemory);
        /// `server.maxmemory`, bytes.
        step maxmemory: Option<u64> = state.member(Member::Maxmemory);
        /// Replication and AOF buffers, which do not count against `maxmemory`, bytes.
        step not_counted: Option<u64> = state.not_counted;
        /// Client buffers by class.
        line client_buffers: Option<ClientBuffers> = state.members.and_then(|members| members.client_buffers());
        /// The server's own counter of commands.
        line commands: Option<u64> = state.member(Member::StatNumcommands);
        /// The server's own counter of evicted keys.
        line evicted_keys: Option<u64> = state.member(Member::StatEvictedkeys);
        /// The server's own counter of expired keys.
        step expired_keys: Option<u64> = state.member(Member::StatExpiredkeys);
        /// The server's own estimate of the share of keys with a time to live that have expired and are still held.
        step stale_ratio: Option<f64> = state.members.and_then(|members| members.stale_ratio());
        /// The share of these that had expired and were held by the last sample.
        #[serde(skip_serializing_if = "Option::is_none")]
        step expired_held: Option<f64> = state.expired_held();
        /// Evicting calls that have ended.
        line evicting_calls: u64 = state.eviction().inner.count();
        /// Wall time in evicting calls.
        #[serde(rename = "evicting_us")]
        step evicting: Duration = Duration::from_nanos(state.evicting_ns);
        /// For how long evicting calls were observed, without the time that the probes took of a sampled server.
        #[serde(rename = "observed_us")]
        step observed: Duration = state.observed.evicting;
        /// Wall time in expire cycles.
        #[serde(rename = "expiring_us")]
        step expiring: Option<Duration> = state.timed.cycles.then(|| Duration::from_nanos(state.expiring_ns));
        /// CPU time of the main thread.
        #[serde(rename = "cpu_us")]
        step cpu: Option<Duration> = snapshot.times.map(|times| Duration::from_nanos(times.cpu_ns));
        /// Time in which the main thread wanted a CPU and had none.
        #[serde(rename = "waiting_us")]
        line waiting: Option<Duration> = snapshot.times.map(|times| Duration::from_nanos(times.waiting_ns));
        /// Connections in which requests waited at the last look.
        line clients_waiting: Option<u64> = state.known_waits().map(Waits::waiting);
        /// How long the oldest of these requests had waited; 0 if there was none.
        #[serde(rename = "longest_wait_us")]
        step longest_wait: Option<Duration> = state.known_waits().map(Waits::oldest_wait);
        /// For how long clients have been stalled.
        #[serde(rename = "stalled_us")]
        line stalled: Option<Duration> = state.stalled_in_all();
        /// What stalled them since the moment before; `None` if nothing did.
        step stalled_by: Option<StallCause> = state.stalled_by;
        /// Commands that were refused because no key could be evicted.
        #[serde(skip_serializing_if = "Option::is_none")]
        step refused: Option<u64> = state.refused();
        /// CPU time of the process that the server had forked to write an RDB or AOF file; `None` if none was known.
        #[serde(rename = "child_us", skip_serializing_if = "Option::is_none")]
        step child: Option<Duration> = snapshot.child_ns.map(Duration::from_nanos);
        /// For how long its CPU quotas were used up, summed over all CPUs; `None` if it is under no known quota.
        #[serde(rename = "throttled_us", skip_serializing_if = "Option::is_none")]
        step throttled: Option<Duration> = state.main_thread.throttled;
        /// For how many seconds the longest-idle key of its eviction pool had not been used; only under LRU policies.
        #[serde(skip_serializing_if = "Option::is_none")]
        step candidate_idle_s: Option<u32> = state.candidate.and_then(Candidate::idle).map(whole_seconds);
        /// The server's own counters of lookups that found their key and of lookups that did not.
        #[serde(skip_serializing_if = "Option::is_none")]
        step lookups: Option<(u64, u64)> =
            state.member(Member::StatKeyspaceHits).zip(state.member(Member::StatKeyspaceMisses));
        /// What its memory is made of, if that was read.
        #[serde(skip_serializing_if = "Option::is_none")]
        step memory: Option<MemoryParts> = snapshot.memory;
        /// Why it evicts nothing, however much memory it uses.
        #[serde(skip_serializing_if = "Option::is_none")]
        step exempt: Option<Exemption> = state.members.and_then(|members| members.exemption());
    }

    passing {
        /// When evicting calls were made.
        step evictions: EvictionTimes = snapshot.eviction_times();
        /// Evicting calls that failed: nothing could be evicted.
        line failed_calls: u64 = snapshot.counted.evictions.evicting_results[ResultKind::Fail as usize];
        /// `mem_reported` of the last evicting call that ended, bytes.
        step last_reported: Option<u64> = snapshot.counted.evictions.last.reported.get();
        /// For how long probes were on evicting calls.
        line probed: Duration = snapshot.observed.evicting;
        /// CPU time of the main thread inside evicting calls.
        line cpu_eviction: Option<Duration> = of_thread(state, |thread| thread.eviction_ns);
        /// CPU time of the main thread elsewhere, while evicting calls were observed.
        line cpu_other: Option<Duration> = of_thread(state, |thread| thread.other_ns);
        /// CPU time of the main thread while evicting calls were not observed.
        line cpu_unobserved: Duration = Duration::from_nanos(state.main_thread.unobserved_ns);
        /// CPU time of the main thread in which it is not known to have worked.
        line no_work: Duration = Duration::from_nanos(state.main_thread.no_work_ns());
        /// Whether it is not known now what of its CPU time is work.
        step hides_work: bool = !state.main_thread.tells_work();
        /// For how long evicting calls stalled clients.
        line stalled_by_evictions: Option<Duration> = state.stalled(StallCause::Eviction);
        /// Keys that expire cycles have sampled, and how many of those had expired.
        step cycle_keys: Option<(u64, u64)> = state.timed.cycle_keys.then(|| state.cycle_keys());
    }
}

fn of_thread(state: &ServerState, ns: fn(&MainThreadTime) -> u64) -> Option<Duration> {
    state.main_thread.is_known().then(|| Duration::from_nanos(ns(&state.main_thread)))
}

fn whole_seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

fn step<T: Copy>(_: &T, later: &T, _: f64) -> T {
    *later
}

fn line<T: Line>(earlier: &T, later: &T, share: f64) -> T {
    T::between(*earlier, *later, share)
}

/// A value that may lie on a straight line.
trait Line: Copy {
    /// Returns the value after this `share` of the way from one to the other.
    fn between(from: Self, to: Self, share: f64) -> Self;
}

impl Line for u64 {
    fn between(from: Self, to: Self, share: f64) -> Self {
        let (from, to) = (from as f64, to as f64);
        (from + (to - from) * share).round() as Self
    }
}

impl Line for Duration {
    fn between(from: Self, to: Self, share: f64) -> Self {
        Self::from_nanos(u64::between(nanoseconds(from), nanoseconds(to), share))
    }
}

impl Line for ClientBuffers {
    fn between(from: Self, to: Self, share: f64) -> Self {
        let class = |class: fn(&Self) -> u64| u64::between(class(&from), class(&to), share);
        let [replica, pubsub, primary] = [class(|all| all.replica), class(|all| all.pubsub), class(|all| all.primary)];
        let total = u64::between(from.total(), to.total(), share);
        Self {
            normal: total.wrapping_sub(replica).wrapping_sub(pubsub).wrapping_sub(primary),
            replica,
            pubsub,
            primary,
        }
    }
}

impl<T: Line> Line for Option<T> {
    fn between(from: Self, to: Self, share: f64) -> Self {
        Some(T::between(from?, to?, share))
    }
}

/// A value as records spell it.
trait Recorded: Sized {
    type Spelling: Serialize + DeserializeOwned + BorshSerialize + BorshDeserialize;

    fn recorded(self) -> Self::Spelling;

    fn of(spelling: Self::Spelling) -> Self;
}

impl Recorded for Duration {
    type Spelling = u64;

    fn recorded(self) -> u64 {
        microseconds(self)
    }

    fn of(us: u64) -> Self {
        Self::from_micros(us)
    }
}

impl<T: Recorded> Recorded for Option<T> {
    type Spelling = Option<T::Spelling>;

    fn recorded(self) -> Self::Spelling {
        self.map(T::recorded)
    }

    fn of(spelling: Self::Spelling) -> Self {
        spelling.map(T::of)
    }
}

macro_rules! as_it_is {
    ($($type:ty),*) => { $(
        impl Recorded for $type {
            type Spelling = Self;

            fn recorded(self) -> Self {
                self
            }

            fn of(spelling: Self) -> Self {
                spelling
            }
        }
    )* };
}

as_it_is!(u32, u64, f64, (u64, u64), Phase, ClientBuffers, Exemption, MemoryParts, StallCause);

mod in_records {
    use super::{Deserialize as _, Deserializer, Recorded, Serialize as _, Serializer};

    pub fn serialize<T: Recorded + Copy, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.recorded().serialize(to)
    }

    pub fn deserialize<'de, T: Recorded, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::Spelling::deserialize(from).map(T::of)
    }
}

impl Moment {
    /// Returns its time since 1970, microseconds.
    pub fn unix_us(&self) -> u64 {
        microseconds(self.at)
    }

    /// Returns the share of `maxmemory` that client buffers take, except those of replicas, which may be shared. It is
    /// 0 if they are so small that a few clients have them at any time, and `None` if it is not known or there is no
    /// limit.
    pub fn buffers_share(&self) -> Option<f64> {
        let limit = self.maxmemory.filter(|limit| *limit > 0)?;
        let buffers = self.client_buffers?;
        let taken = buffers.total().wrapping_sub(buffers.replica);
        Some(if taken >= MUCH { taken as f64 / limit as f64 } else { 0.0 })
    }

    /// Returns whether it evicts, or memory falls after it has.
    pub fn is_busy(&self) -> bool {
        matches!(self.phase, Some(Phase::Saturated | Phase::Reclaim))
    }

    pub(crate) fn all_client_buffers(&self) -> Option<u64> {
        self.client_buffers.map(ClientBuffers::total)
    }

    pub(crate) fn cpu_observed(&self) -> Option<Duration> {
        Some(self.cpu_eviction?.saturating_add(self.cpu_other?))
    }

    pub(crate) fn cpu_since_found(&self) -> Option<Duration> {
        Some(self.cpu_observed()?.saturating_add(self.cpu_unobserved))
    }

    /// Returns the CPU time in which the main thread worked.
    pub(crate) fn work(&self) -> Option<Duration> {
        Some(self.cpu_since_found().filter(|_| !self.hides_work)?.saturating_sub(self.no_work))
    }
}

/// Returns the share of lookups between the first and the last moment that found their key; `None` if there were no
/// lookups or the counters were reset.
pub fn found_share(moments: impl Iterator<Item = Moment>) -> Option<f64> {
    let mut lookups = moments.filter_map(|moment| moment.lookups);
    let first = lookups.next()?;
    let last = lookups.last()?;
    let hits = last.0.checked_sub(first.0)?;
    let all = hits + last.1.checked_sub(first.1)?;
    (all > 0).then(|| hits as f64 / all as f64)
}

/// A time in which one cause stalled clients, since 1970, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallTime {
    pub from_us: u64,
    pub to_us: u64,
    pub by: StallCause,
}

impl StallTime {
    pub fn length_us(self) -> u64 {
        self.to_us - self.from_us
    }
}

/// Returns when clients were stalled between the first and the last of these moments, which are in order of time.
///
/// The time that a look adds ends at that look, so it may begin before the preceding moment.
pub fn stall_times(moments: impl IntoIterator<Item = Moment>) -> impl Iterator<Item = StallTime> {
    let mut last: Option<Moment> = None;
    moments.into_iter().filter_map(move |now| {
        let before = last.replace(now)?;
        let stalled_us = microseconds(now.stalled?).checked_sub(microseconds(before.stalled?))?;
        (stalled_us > 0).then(|| StallTime {
            from_us: now.unix_us().saturating_sub(stalled_us),
            to_us: now.unix_us(),
            by: now.stalled_by.unwrap_or(StallCause::Unknown),
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ClientBuffers, Moment, StallCause, StallTime, stall_times};

    #[test]
    fn between_two_readings_the_counters_rise_evenly() {
        let buffers = |normal, replica| Some(ClientBuffers { normal, replica, pubsub: 0, primary: 0 });
        let before = Moment {
            at: Duration::from_millis(100),
            commands: Some(50),
            client_buffers: buffers(0, 0),
            ..Moment::default()
        };
        let after = Moment {
            at: Duration::from_millis(200),
            commands: Some(150),
            used_memory: Some(9),
            client_buffers: buffers(3, 3),
            maxmemory: Some(7),
            ..before
        };
        let at = |milliseconds| before.interpolate(&after, Duration::from_millis(milliseconds));
        assert_eq!([100, 125, 300].map(|milliseconds| at(milliseconds).commands), [Some(50), Some(75), Some(150)]);
        assert_eq!(at(200).used_memory, None, "known at one end only");
        assert_eq!(at(125).maxmemory, Some(7));
        // The sum of all classes is on the line, too.
        assert_eq!(at(150).all_client_buffers(), Some(3));
        let nothing = Moment::default();
        assert_eq!(nothing.interpolate(&nothing, Duration::ZERO), nothing);
    }

    #[test]
    fn a_stall_ends_at_the_look_that_saw_it() {
        let by = Some(StallCause::Commands);
        let moment = |unix_us, stalled_us: Option<u64>, stalled_by| Moment {
            at: Duration::from_micros(unix_us),
            stalled: stalled_us.map(Duration::from_micros),
            stalled_by,
            ..Moment::default()
        };
        let moments = [
            moment(1_000_000, Some(5_000), by),
            moment(1_100_000, Some(5_000), None),
            // Looks are a second apart while nothing is known to wait.
            moment(2_000_000, Some(905_000), by),
            moment(2_020_000, Some(925_000), None),
            moment(2_040_000, None, None),
            moment(2_060_000, Some(990_000), by),
            // Counted by another agent.
            moment(2_080_000, Some(0), None),
        ];
        let times: Vec<_> = stall_times(moments).collect();
        let time = |from_us, to_us, by| StallTime { from_us, to_us, by };
        let expected =
            [time(1_100_000, 2_000_000, StallCause::Commands), time(2_000_000, 2_020_000, StallCause::Unknown)];
        assert_eq!(times, expected);
        assert_eq!(times[0].length_us(), 900_000);
    }
}
