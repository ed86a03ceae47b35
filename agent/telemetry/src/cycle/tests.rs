use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Cycle, KEPT, QUIET};
use crate::{Burst, BurstKind, ClientBuffers, EvictionTimes, MemoryParts, Moment, Phase};

const FOUND: u64 = 5_000;
const MIB: u64 = 1 << 20;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A made-up server with a clock of its own, observed every 100 ms.
struct Server {
    cycle: Cycle,
    seen: Moment,
    bursts: Vec<Arc<Burst>>,
    /// The phases that it went through.
    phases: Vec<Phase>,
}

/// What a server does in each millisecond.
#[derive(Clone, Copy, Debug)]
struct Doing {
    commands: u64,
    /// Milliseconds between two evicting calls; 0 for no calls.
    evicting_every: u64,
    /// Busy microseconds.
    busy: u64,
    memory: i64,
    buffers: i64,
    /// Connections in which requests wait.
    waiting: u64,
    /// Microseconds in which evicting calls stall clients.
    stalled: u64,
}

const CALM: Doing =
    Doing { commands: 10, evicting_every: 0, busy: 300, memory: 1_000, buffers: 0, waiting: 1, stalled: 0 };
/// Like GitLab's second phase.
const STARVED: Doing =
    Doing { commands: 2, evicting_every: 1, busy: 1_000, memory: 0, buffers: 10_000, waiting: 2_000, stalled: 1_000 };
const BACKLOG: Doing = Doing {
    commands: 12,
    evicting_every: 0,
    busy: 1_000,
    memory: -5_000,
    buffers: -5_000,
    waiting: 500,
    stalled: 1_000,
};

impl Server {
    fn new() -> Self {
        let seen = Moment {
            at: ms(FOUND),
            commands: Some(7),
            evicted_keys: Some(0),
            used_memory: Some(300 * MIB),
            client_buffers: Some(ClientBuffers { normal: 40 * MIB, replica: 0, pubsub: 0, primary: 0 }),
            cpu_eviction: Some(Duration::ZERO),
            cpu_other: Some(Duration::ZERO),
            waiting: Some(Duration::ZERO),
            clients_waiting: Some(0),
            stalled: Some(Duration::ZERO),
            stalled_by_evictions: Some(Duration::ZERO),
            ..Moment::default()
        };
        Self { cycle: Cycle::new(ms(FOUND)), seen, bursts: Vec::new(), phases: vec![Phase::NotSaturated] }
    }

    /// A server that has done this, each for so many milliseconds.
    fn after(done: &[(Doing, u64)]) -> Self {
        let mut server = Self::new();
        done.iter().for_each(|&(doing, milliseconds)| server.goes_on(doing, milliseconds));
        server
    }

    fn goes_on(&mut self, doing: Doing, milliseconds: u64) {
        self.goes_on_observed(doing, milliseconds, 100);
    }

    fn goes_on_observed(&mut self, doing: Doing, milliseconds: u64, every: u64) {
        for step in 1..=milliseconds {
            let seen = &mut self.seen;
            seen.at += ms(1);
            seen.probed += ms(1);
            let add = |value: &mut Option<u64>, step: u64| *value = value.map(|value| value + step);
            add(&mut seen.commands, doing.commands);
            let moves =
                |value: &mut Option<u64>, step: i64| *value = value.and_then(|value| value.checked_add_signed(step));
            moves(&mut seen.used_memory, doing.memory);
            if let Some(buffers) = &mut seen.client_buffers {
                buffers.normal = buffers.normal.saturating_add_signed(doing.buffers);
            }
            let mut busy_ns = doing.busy * 1_000;
            if doing.evicting_every > 0 && step % doing.evicting_every == 0 {
                // As the kernel does; a call takes half a millisecond.
                let began = seen.at - Duration::from_micros(500);
                let times = &mut seen.evictions;
                if began.saturating_sub(times.last) >= QUIET {
                    times.burst_before_ended = times.last;
                    times.burst_began = began;
                }
                times.last = seen.at;
                seen.evicting_calls += 1;
                add(&mut seen.evicted_keys, 20);
                seen.cpu_eviction = seen.cpu_eviction.map(|time| time + Duration::from_micros(500));
                busy_ns = busy_ns.saturating_sub(500_000);
            }
            seen.cpu_other = seen.cpu_other.map(|time| time + Duration::from_nanos(busy_ns));
            seen.clients_waiting = Some(doing.waiting);
            let stalled = Duration::from_micros(doing.stalled);
            for total in [&mut seen.stalled, &mut seen.stalled_by_evictions] {
                *total = total.map(|total| total + stalled);
            }
            if step % every == 0 {
                self.bursts.extend(self.cycle.observe(&self.seen));
                self.phases.push(self.cycle.phases.phase);
                self.phases.dedup();
            }
        }
    }

    fn only_burst(&self) -> &Burst {
        assert_eq!(self.bursts.len(), 1, "{:?}", self.bursts);
        &self.bursts[0]
    }

    fn durations(&self) -> [f64; 2] {
        assert_eq!(self.bursts.len(), 2, "{:?}", self.bursts);
        [0, 1].map(|index| self.bursts[index].duration.as_secs_f64())
    }

    fn seconds(&self) -> [f64; 3] {
        Phase::ALL.map(|phase| self.cycle.phases.time(phase).as_secs_f64())
    }
}

fn near(left: f64, right: f64) -> bool {
    (left - right).abs() <= 0.02 * right.abs()
}

fn bytes(value: Option<u64>) -> Option<f64> {
    value.map(|bytes| bytes as f64)
}

fn assert_near(value: Option<f64>, expected: f64, burst: &Burst) {
    assert!(value.is_some_and(|value| near(value, expected)), "{value:?} is not near {expected}: {burst:?}");
}

/// On the line between two observations, half of the memory that is freed right after the last evicting
/// call would be freed before it.
#[test]
fn memory_at_the_end_is_what_the_last_evicting_call_reported() {
    let mut server = Server::after(&[(CALM, 10_000), (STARVED, 3_050)]);
    let reported = server.seen.used_memory;
    server.seen.last_reported = reported;
    server.seen.used_memory = reported.map(|bytes| bytes - 30_000_000);
    server.goes_on(CALM, 5_000);
    let burst = server.only_burst();
    assert_eq!(burst.memory_end, reported);
    assert_near(bytes(burst.reclaimed()), 30_000_000.0, burst);
}

#[test]
fn the_cycle_of_the_article() {
    let mut server = Server::after(&[(CALM, 90_000)]);
    assert_eq!(server.cycle.phases.phase, Phase::NotSaturated);
    // Off the beat of the observations.
    server.goes_on(CALM, 37);
    server.goes_on(STARVED, 7_013);
    assert_eq!(server.cycle.phases.phase, Phase::Saturated);
    server.goes_on(BACKLOG, 2_050);
    assert_eq!(server.cycle.phases.phase, Phase::Reclaim);
    assert!(server.bursts.is_empty());
    server.goes_on(BACKLOG, 10_000);
    server.goes_on(CALM, 30_000);
    assert_eq!(server.cycle.phases.phase, Phase::NotSaturated);

    let burst = server.only_burst();
    assert!(burst.started.abs_diff(ms(FOUND + 90_037)) <= ms(1), "{burst:?}");
    assert!(burst.duration.abs_diff(ms(7_013)) <= ms(1), "{burst:?}");
    // A fifth of the fall is left after four fifths of 12.05 s; then memory rises again.
    assert!(burst.reclaim.abs_diff(ms(9_550)) <= ms(200), "{burst:?}");
    assert_eq!(burst.evicting_calls, 7_013);
    assert_eq!(burst.evicted_keys, Some(140_260));
    assert_near(burst.commands_per_second, 2_000.0, burst);
    // Until the last observation in the reclaim.
    assert_near(burst.stalled.map(|stalled| stalled.as_secs_f64()), 19.1, burst);
    assert_eq!(burst.clients_waiting_peak, Some(2_000));
    assert_near(bytes(burst.client_buffer_growth()), 70_130_000.0, burst);
    assert_near(bytes(burst.reclaimed()), 60_250_000.0, burst);
    assert_near(burst.cpu_share, 1.0, burst);
    assert_near(burst.eviction_cpu_share, 0.5, burst);
    assert_eq!(burst.kind().0, BurstKind::SelfAmplifying, "{burst:?}");

    let [calm, saturated, reclaim] = server.seconds();
    assert_near(Some(saturated), 7.013, burst);
    assert_near(Some(reclaim), burst.reclaim.as_secs_f64(), burst);
    assert!((calm + saturated + reclaim - 139.1).abs() < 0.001);
    let [calm, saturated, reclaim] = Phase::ALL;
    assert_eq!(server.phases, [calm, saturated, reclaim, calm]);
    let finished = server.cycle.totals.finished;
    assert_eq!(finished[BurstKind::SelfAmplifying as usize], 1);
    assert_eq!(server.cycle.recent().count(), 1);
}

#[test]
fn the_boundaries_do_not_depend_on_the_interval_of_observation() {
    for every in [10, 100, 500, 900] {
        let mut server = Server::new();
        server.goes_on_observed(CALM, 63_000, every);
        server.goes_on_observed(STARVED, 6_300, every);
        server.goes_on_observed(CALM, 9_000, every);
        let burst = server.only_burst();
        assert!(burst.duration.abs_diff(ms(6_300)) <= ms(1), "{every}: {burst:?}");
        assert_eq!(burst.reclaim, Duration::ZERO);
        assert_eq!(burst.evicting_calls, 6_300);
        let [calm, saturated, _] = Phase::ALL;
        assert_eq!(server.phases, [calm, saturated, calm]);
    }
}

#[test]
fn a_calm_cache_that_always_evicts_is_saturated_once_and_never_bursts() {
    let mut server = Server::after(&[(CALM, 10_000)]);
    for every in [3, 70, 990] {
        server.goes_on(Doing { evicting_every: every, memory: 0, ..CALM }, 60_000);
    }
    assert_eq!(server.cycle.phases.phase, Phase::Saturated);
    assert_eq!(server.phases, [Phase::NotSaturated, Phase::Saturated]);
    assert!(server.cycle.has_open_burst() && server.bursts.is_empty());
    server.goes_on(CALM, 5_000);
    let kinds: Vec<_> = server.bursts.iter().map(|burst| burst.kind().0).collect();
    assert_eq!(kinds, [BurstKind::Plain], "{:?}", server.bursts);
}

#[test]
fn a_cache_that_evicts_now_and_then_has_plain_bursts_only() {
    let mut server = Server::after(&[(CALM, 10_000)]);
    server.goes_on(Doing { evicting_every: 2_500, ..CALM }, 600_000);
    assert!(server.bursts.len() > 200);
    assert!(server.bursts.iter().all(|burst| burst.kind().0 == BurstKind::Plain));
    assert_eq!(server.cycle.recent().count(), KEPT);
}

#[test]
fn calls_that_fail_are_no_burst() {
    let mut server = Server::after(&[(CALM, 10_000)]);
    for _ in 0..5 {
        for _ in 0..20 {
            server.goes_on_observed(STARVED, 100, u64::MAX);
            server.seen.failed_calls = server.seen.evicting_calls;
            server.goes_on_observed(CALM, 1, 1);
        }
        server.goes_on(CALM, 3_000);
    }
    assert_eq!(server.bursts, []);
    assert_eq!(server.cycle.totals.finished, [0; 4]);
}

#[test]
fn a_new_burst_ends_the_reclaim_of_the_one_before() {
    let mut server = Server::new();
    server.goes_on(CALM, 30_000);
    server.goes_on(STARVED, 5_000);
    server.goes_on(BACKLOG, 5_000);
    server.goes_on(STARVED, 4_000);
    server.goes_on(BACKLOG, 5_000);
    server.goes_on(CALM, 5_000);
    assert_eq!(server.durations().map(f64::round), [5.0, 4.0]);
    let [calm, saturated, reclaim] = Phase::ALL;
    assert_eq!(server.phases, [calm, saturated, reclaim, saturated, reclaim, calm]);
}

#[test]
fn two_bursts_in_one_gap_of_the_observations_are_two() {
    let mut server = Server::after(&[(CALM, 30_000), (STARVED, 2_000)]);
    // The agent was busy for 5 s.
    for (doing, time) in [(STARVED, 500), (CALM, 3_000), (STARVED, 1_500)] {
        server.goes_on_observed(doing, time, u64::MAX);
    }
    server.goes_on(STARVED, 1_000);
    server.goes_on(CALM, 5_000);
    let durations = server.durations();
    assert!(durations.iter().all(|seconds| near(*seconds, 2.5)), "{durations:?}");
}

#[test]
fn the_servers_counters_may_be_reset_in_a_burst() {
    let mut server = Server::after(&[(CALM, 30_000), (STARVED, 3_000)]);
    server.seen.commands = Some(0);
    server.seen.evicted_keys = Some(0);
    server.goes_on(STARVED, 3_000);
    server.goes_on(CALM, 5_000);
    let burst = server.only_burst();
    assert_eq!(burst.evicted_keys, Some(120_000));
    assert_near(burst.commands_per_second, 2_000.0, burst);
}

#[test]
fn a_call_under_way_keeps_the_burst_open() {
    let mut server = Server::after(&[(CALM, 30_000), (STARVED, 100)]);
    // One key so large that freeing it takes three minutes.
    server.seen.evictions.since = server.seen.at;
    server.goes_on(Doing { busy: 1_000, commands: 0, ..CALM }, 180_000);
    assert_eq!(server.cycle.phases.phase, Phase::Saturated);
    server.seen.evictions.since = Duration::ZERO;
    server.seen.evictions.last = server.seen.at;
    server.goes_on(CALM, 5_000);
    let burst = server.only_burst();
    assert!(near(burst.duration.as_secs_f64(), 180.1), "{burst:?}");
}

#[test]
fn a_burst_notes_how_many_keys_had_expired_in_the_minute_before_it() {
    let mut server = Server::new();
    (server.seen.stale_ratio, server.seen.expired_held) = (Some(0.3), Some(0.35));
    for expired in [900, 400] {
        for _ in 0..70 {
            let (all, gone) = server.seen.cycle_keys.unwrap_or_default();
            server.seen.cycle_keys = Some((all + 1_000, gone + expired));
            server.goes_on(CALM, 1_000);
        }
    }
    (server.seen.stale_ratio, server.seen.expired_held) = (Some(0.9), Some(0.95));
    server.goes_on(STARVED, 2_000);
    server.goes_on(CALM, 5_000);
    let burst = server.only_burst();
    assert!(near(burst.expired_share_before.unwrap_or_default(), 0.4), "{burst:?}");
    assert_eq!(burst.stale_ratio_before, Some(0.3), "{burst:?}");
    assert_eq!(burst.expired_held_before, Some(0.35), "{burst:?}");
    assert!(burst.expiry_behind().is_some(), "{burst:?}");
}

fn times(cycle: &Cycle) -> [Duration; 3] {
    Phase::ALL.map(|phase| cycle.phases.time(phase))
}

/// Times around those of the observations, and far from them.
fn any_time() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(0), 0..200_000_u64, any::<u64>()].prop_map(ms)
}

fn any_moment() -> impl Strategy<Value = Moment> {
    let value = prop::option::of(prop_oneof![0..1_000_000_000_u64, any::<u64>()]);
    let times = (any_time(), any_time(), any_time(), any_time());
    let values = prop::array::uniform9(value);
    (any_time(), times, any::<u64>(), values).prop_map(|(at, times, evicting_calls, values)| Moment {
        at,
        evictions: EvictionTimes { since: times.0, last: times.1, burst_began: times.2, burst_before_ended: times.3 },
        evicting_calls,
        failed_calls: evicting_calls / 2,
        cpu_eviction: values[0].map(Duration::from_nanos),
        cpu_other: values[1].map(Duration::from_nanos),
        no_work: Duration::from_nanos(values[2].unwrap_or(0)),
        hides_work: values[2].is_none(),
        waiting: values[2].map(Duration::from_nanos),
        commands: values[3],
        evicted_keys: values[4],
        used_memory: values[5],
        not_counted: values[6],
        probed: Duration::from_nanos(values[8].unwrap_or(0)),
        cpu_unobserved: Duration::from_nanos(values[8].unwrap_or(0)),
        client_buffers: values[6].map(|normal| ClientBuffers { normal, replica: 0, pubsub: 0, primary: 0 }),
        memory: values[4].map(MemoryParts::of_keys),
        last_reported: values[7],
        clients_waiting: values[6],
        cycle_keys: values[0].zip(values[1]),
        stale_ratio: values[2].map(|value| value as f64),
        ..Moment::default()
    })
}

fn any_doing() -> impl Strategy<Value = Doing> {
    let moves = || -9_000..9_000_i64;
    let parts = (0..20_u64, 0..1_500_u64, 0..1_000_u64, moves(), moves());
    parts.prop_map(|(commands, evicting_every, busy, memory, buffers)| Doing {
        commands,
        evicting_every,
        busy,
        memory,
        buffers,
        waiting: 0,
        stalled: 0,
    })
}

proptest! {
    #[test]
    fn seconds_are_conserved_for_any_observations(observations in prop::collection::vec(any_moment(), 0..60)) {
        let mut cycle = Cycle::new(ms(FOUND));
        let mut newest = ms(FOUND);
        let mut finished = 0;
        for seen in &observations {
            let before = times(&cycle);
            finished += cycle.observe(seen).len() as u64;
            newest = newest.max(seen.at);
            let after = times(&cycle);
            for (before, after) in before.iter().zip(after) {
                prop_assert!(after >= *before, "a counter went back");
            }
            let sum: Duration = after.iter().sum();
            prop_assert!(sum <= newest - ms(FOUND), "more seconds than there were");
            if cycle.phases.phase == Phase::NotSaturated {
                prop_assert_eq!(sum, newest - ms(FOUND));
            }
            prop_assert_eq!(cycle.totals.finished.iter().sum::<u64>(), finished);
            let is_open = cycle.phases.phase != Phase::NotSaturated;
            prop_assert_eq!(cycle.has_open_burst(), is_open);
        }
    }

    #[test]
    fn no_second_is_missing_for_long(
        lives in prop::collection::vec((any_doing(), 1..40_u64, 1..1_500_u64), 1..12),
    ) {
        let mut server = Server::new();
        let mut lived = 0;
        for (doing, observations, every) in lives {
            // Each of them ends with an observation, so at most `every` has not been seen yet.
            server.goes_on_observed(doing, observations * every, every);
            lived += observations * every;
            let sum: f64 = server.seconds().iter().sum();
            let missing = lived as f64 / 1e3 - sum;
            // Time that is not certain yet.
            let most = match server.cycle.phases.phase {
                // Until memory stops falling, it is not known since when it has fallen far enough.
                Phase::Reclaim => Duration::MAX,
                _ => QUIET + ms(every),
            };
            prop_assert!((0.0 - 1e-6..=most.as_secs_f64()).contains(&missing), "{missing} s are missing");
        }
        server.goes_on(CALM, 10_000);
        prop_assert_eq!(server.cycle.phases.phase, Phase::NotSaturated);
        let kinds: u64 = server.cycle.totals.finished.iter().sum();
        prop_assert_eq!(kinds, server.bursts.len() as u64);
        let calls: u64 = server.bursts.iter().map(|burst| burst.evicting_calls).sum();
        prop_assert!(calls.abs_diff(server.seen.evicting_calls) <= kinds, "{calls} of {}", server.seen.evicting_calls);
    }
}
