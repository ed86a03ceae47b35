//! Made-up servers for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evictscope_abi::{
    CallStats, Check, CycleStats, CycleType, Histogram, Longest, Noted, ResultKind, bounds,
};
use evictscope_host::Container;
use evictscope_plan::{Item, Member, NotFound, Reason};
use evictscope_telemetry::{
    BIN_NS, Cycle, EvictionTimes, Members, Moment, Observation, Observed, ProbeMode, ServerState,
    Snapshot, SocketLook, ThreadTimes, Timeline,
};

use super::complete::{EVICTION, every_member, plan};
use super::server::ExportedServer;
use super::unwatched::{Reason as WhyUnwatched, Unwatched};

/// A server that is too old.
pub fn unwatched() -> Unwatched {
    Unwatched {
        server: "6380".to_owned(),
        pid: 43,
        reason: WhyUnwatched::Executable,
        why: "Redis <5> is too old".to_owned(),
    }
}

/// Returns a server that was attached just now, in evicting-only mode.
pub fn new_server() -> ExportedServer {
    ExportedServer {
        label: "6379".to_owned(),
        pid: 100,
        command: "redis-server".to_owned(),
        exe: PathBuf::from("/usr/bin/redis-check-rdb"),
        container: Container {
            id: Some("3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2".to_owned()),
            pod_uid: Some("2f1c1b6e-0f9c-4e62-a1f1-0d0a6ad7d8a4".to_owned()),
            cgroup: "/kubepods.slice/redis".to_owned(),
        },
        container_name: Some("redis".to_owned()),
        plan: Arc::new(plan()),
        mode: ProbeMode::EvictingOnly,
        withdrawn: None,
        cycles_withdrawn: None,
        overhead_ratio: None,
        overhead_budget_ratio: 0.01,
        foreign_breakpoints: 0,
        state: ServerState::new(),
        cycle: Some(Cycle::new(Duration::from_secs(1))),
        timeline: None,
        records: Arc::default(),
        read: Instant::now(),
    }
}

/// Returns a server in every-call mode with all values known.
pub fn busy_server() -> ExportedServer {
    let mut snapshot = Snapshot::default();
    let counted = &mut snapshot.counted;
    let (calls, evictions) = (&mut counted.calls[0], &mut counted.evictions);
    for (duration, result) in [(900, ResultKind::Ok), (501_000, ResultKind::Running)] {
        let bucket = bounds::INNER_NS.bucket(duration);
        calls.inner.record(bucket, duration);
        calls.longest[0] = Longest {
            window: 0,
            duration_ns: duration,
        };
        evictions.evicting_results[result as usize] += 1;
    }
    calls.noop.record(0, 250);
    evictions.noop_results[ResultKind::Ok as usize] = 1;
    let mebi = 1 << 20;
    record(&mut evictions.mem_tofree, bounds::MEM_TOFREE, &[64, 4_000]);
    evictions.last.overhead = Noted {
        value: 1,
        is_known: 1,
    };
    calls.hits = [3, 3, 2, 2];
    calls.lost_exits = 1;
    evictions.checks = [2; 3];
    evictions.check_failures[Check::Allocator as usize] = 1;
    counted.calls.push(CallStats {
        hits: [0, 0, 12, 12],
        ..CallStats::default()
    });
    let expires = &mut counted.expires;
    expires.cycles[CycleType::Slow as usize] =
        cycles(&[30_000, 25_100_000, 25_200_000], 4_000, 3_000);
    expires.cycles[CycleType::Fast as usize] = cycles(&[1_010_000], 200, 90);
    let times = |cpu_ns| {
        Some(ThreadTimes {
            cpu_ns,
            waiting_ns: cpu_ns / 10,
        })
    };
    let mut members = every_member();
    let own_values = [
        (Member::Maxmemory, 64 * mebi),
        (Member::MaxmemoryPolicy, 4 << 8 | 5),
        (Member::StatNumcommands, 1_000),
        (Member::StatEvictedkeys, 20),
        (Member::StatExpiredkeys, 3),
        (Member::StatClientsTypeMemory, 400_000),
        (Member::UsedMemory, 64 * mebi),
        (Member::StatExpiredStalePerc, 0.25_f64.to_bits()),
        (Member::StatExpiredTimeCapReachedCount, 2),
        (Member::StatExpireCycleTimeUsed, 51_400),
    ];
    for (member, value) in own_values {
        members.set(member, &[value]);
    }
    snapshot.members = Some(members);
    let before = Snapshot {
        times: times(0),
        ..Snapshot::default()
    };
    snapshot.times = times(1_750_000_000);
    snapshot.look = Some(SocketLook {
        at: snapshot.at,
        connected: 50,
        ..SocketLook::default()
    });
    snapshot.at = Duration::from_secs(2);
    snapshot.observed = Observed {
        evicting: Duration::from_millis(1_500),
        noop: Duration::from_secs(1),
    };
    let observed = snapshot.observed;
    let mut server = new_server();
    server.mode = ProbeMode::EveryCall;
    server.state.apply(&before);
    server.state.apply(&snapshot);
    server.state.observe(observed, 0.0);
    server.cycle = Some(after_a_burst());
    server.timeline = Some(Arc::new(Mutex::new(timeline())));
    server
}

fn cycles(durations: &[u64], sampled: u64, expired: u64) -> CycleStats {
    let mut cycles = CycleStats {
        sampled,
        expired,
        ..CycleStats::default()
    };
    record(&mut cycles.duration, bounds::CYCLE_NS, durations);
    cycles
}

/// Returns a server whose plan lacks most items, with a name that needs escaping.
pub fn partial_server() -> ExportedServer {
    let mut plan = plan();
    plan.identity.build_id = None;
    plan.identity.version = None;
    plan.functions[0].inner = None;
    plan.functions[1]
        .inner
        .as_mut()
        .map(|start| start.cycle_type.take());
    plan.functions[1].exits[0].sampled = None;
    plan.not_found = [
        Item::Inner(EVICTION),
        Item::CycleType,
        Item::KeysSampled,
        Item::Member(Member::StatNumcommands),
        Item::Inner(EVICTION),
    ]
    .map(|item| NotFound {
        item,
        reason: Reason::Unrecognised("no place where <all> of it is in reach"),
    })
    .into();
    let snapshot = Snapshot {
        members: Some(Members::from_iter([(Member::Maxmemory, 0)])),
        ..Snapshot::default()
    };
    let mut server = ExportedServer {
        label: "/run/\"<b>\".sock".to_owned(),
        pid: 101,
        exe: PathBuf::from("/opt/<redis> & co/redis-server (deleted)"),
        container: Container {
            cgroup: "/system.slice/<redis>.service".to_owned(),
            ..Container::default()
        },
        container_name: None,
        plan: Arc::new(plan),
        cycle: None,
        foreign_breakpoints: 2,
        ..new_server()
    };
    server.state.apply(&snapshot);
    server
}

/// Six bins from the beginning of a second on: two of them spent in evicting calls, and some of the
/// ones after it.
pub fn timeline() -> Timeline {
    let at = |bin: u64| Duration::from_nanos((50 + bin) * BIN_NS);
    let mut timeline = Timeline::new(at(0));
    let mut seen = |bin, evicting_ns, cpu_eviction_ns, cpu_other_ns, memory| {
        let seen = Observation {
            at: at(bin),
            unix_time: Duration::from_secs(1_700_000_000) + at(bin),
            observed: at(bin),
            cpu_eviction_ns: Some(cpu_eviction_ns),
            cpu_other_ns: Some(cpu_other_ns),
            used_memory: memory,
            client_buffers: memory.map(|_| 1 << 20),
            commands: memory.map(|_| 5_000),
            stalled: memory.map(|_| Duration::from_millis(100)),
            ..Observation::default()
        };
        let moment = moment(&seen);
        timeline.take_in(&seen, evicting_ns, moment);
    };
    seen(0, 0, 0, 0, None);
    seen(1, 0, 0, 0, None);
    seen(2, BIN_NS, 19_000_000, 0, None);
    seen(3, 2 * BIN_NS, 19_000_000, 0, None);
    seen(4, 2 * BIN_NS + 1_000_000, 19_000_000, 0, None);
    seen(
        5,
        2 * BIN_NS + 1_000_000,
        19_000_000,
        10_000_000,
        Some(64 << 20),
    );
    seen(6, 2 * BIN_NS + 1_000_000, 19_000_000, 10_000_000, None);
    timeline
}

/// Returns the moment of an observation, as far as that tells.
fn moment(seen: &Observation) -> Moment {
    let snapshot = Snapshot {
        at: seen.at,
        unix_time: seen.unix_time,
        ..Snapshot::default()
    };
    let mut state = ServerState::new();
    let members = [
        (Member::UsedMemory, seen.used_memory),
        (Member::StatClientsTypeMemory, seen.client_buffers),
        (Member::StatNumcommands, seen.commands),
    ];
    let known = members.map(|(member, value)| Some((member, value?)));
    state.members = Some(known.into_iter().flatten().collect());
    Moment::new(&snapshot, &state, None, true)
}

/// Returns the cycle of a server that was found at 1 s, in a burst from 31 to 35 s, and in the reclaim after it until 41 s.
fn after_a_burst() -> Cycle {
    let mut cycle = Cycle::new(Duration::from_secs(1));
    for second in 2..=45_u64 {
        let evicting = second.clamp(31, 35);
        let burst = if second < 31 { 0 } else { evicting };
        let falling = second.clamp(35, 41) - 35;
        cycle.observe(&Observation {
            at: Duration::from_secs(second),
            unix_time: Duration::from_secs(1_700_000_000 + second),
            evictions: EvictionTimes {
                last: Duration::from_secs(burst),
                burst_began: Duration::from_secs(burst.min(31)),
                ..EvictionTimes::default()
            },
            evicting_calls: 100 * (evicting - 31),
            cpu_eviction_ns: Some(500_000_000 * evicting),
            cpu_other_ns: Some(500_000_000 * second),
            waiting_ns: Some(0),
            commands: Some(1_000 * second - 750 * (evicting - 31)),
            evicted_keys: Some(400 * (evicting - 31)),
            used_memory: Some((64 << 20) - (falling << 20)),
            observed: Duration::from_secs(second),
            cpu_unobserved_ns: 0,
            last_reported: Some(64 << 20),
            client_buffers: Some((evicting - 30 - falling.min(4)) << 20),
            failed_calls: 0,
            clients_waiting: Some(if burst > 0 { 12 * (evicting - 30) } else { 1 }),
            stalled: Some(Duration::from_millis(500 * (evicting - 31))),
            stalled_by_evictions: Some(Duration::from_millis(400 * (evicting - 31))),
            cycle_keys: Some((200 * second, 90 * second)),
            stale_ratio: Some(0.4),
        });
    }
    cycle
}

fn record<const BUCKETS: usize>(
    histogram: &mut Histogram<BUCKETS>,
    bounds: evictscope_abi::Bounds,
    values: &[u64],
) {
    for value in values {
        histogram.record(bounds.bucket(*value), *value);
    }
}
