//! Made-up servers for tests.

mod history;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evictscope_abi::{CallStats, Check, CycleStats, CycleType, Histogram, Longest, ResultKind, bounds};
use evictscope_host::{Container, ContainerName, PodName};
use evictscope_model::Member;
use evictscope_plan::{FunctionPlan, Item, NotFound, Reason};
use evictscope_telemetry::{
    Candidate, Cycle, ExpiredSample, MemberValues, Moment, Observed, ProbeMode, ServerState, Snapshot, SocketLook,
    ThreadTimes, Timeline, Unread,
};

use self::history::after_a_burst;
pub use self::history::{before_a_burst, timeline};
use crate::families::complete::{EVICTION, complete_server, every_member, lose_inner_sites, plan};
use crate::published::exported::ExportedServer;
use crate::published::unwatched::{Reason as WhyUnwatched, Unwatched};

/// Returns a server that is too old.
pub fn unwatched() -> Unwatched {
    Unwatched {
        server: "6380".to_owned(),
        pid: 43,
        reason: WhyUnwatched::Executable,
        why: "Redis <5> is too old".to_owned(),
    }
}

/// Returns a server that has just been attached to, in evicting-only mode.
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
        container_name: Some(ContainerName {
            name: "redis".to_owned(),
            pod: Some(PodName { namespace: "shop".to_owned(), name: "cart-0".to_owned() }),
        }),
        mode: ProbeMode::EvictingOnly,
        overhead_ratio: None,
        foreign_breakpoints: 0,
        is_obstructed: false,
        knows_no_expired: false,
        state: ServerState::default(),
        cycle: Some(Cycle::new(Duration::from_secs(1))),
        ..complete_server()
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
        calls.longest[0] = Longest { window: 0, duration_ns: duration };
        evictions.evicting_results[result as usize] += 1;
    }
    calls.noop.record(0, 250);
    evictions.noop_results[ResultKind::Ok as usize] = 1;
    let mebi = 1 << 20;
    record(&mut evictions.mem_tofree, bounds::MEM_TOFREE, &[64, 4_000]);
    calls.hits = [3, 3, 2, 2];
    calls.lost_exits = 1;
    evictions.checks = [2; 3];
    evictions.check_failures[Check::Allocator as usize] = 1;
    counted.calls.push(CallStats { hits: [0, 0, 12, 12], ..CallStats::default() });
    let expires = &mut counted.expires;
    expires.cycles[CycleType::Slow as usize] = cycles(&[30_000, 25_100_000, 25_200_000], 4_000, 3_000);
    expires.cycles[CycleType::Fast as usize] = cycles(&[1_010_000], 200, 90);
    let times = |cpu_ns| Some(ThreadTimes { cpu_ns, waiting_ns: cpu_ns / 10 });
    let mut members = every_member();
    let own_values = [
        (Member::Maxmemory, 64 * mebi),
        (Member::MaxmemoryPolicy, 4 << 8 | 5),
        (Member::StatNumcommands, 1_000),
        (Member::StatEvictedkeys, 20),
        (Member::StatExpiredkeys, 3),
        (Member::StatClientsTypeMemory, 400_000),
        (Member::UsedMemory, 60 * mebi),
        (Member::StatExpiredStalePerc, 0.25_f64.to_bits()),
        (Member::StatExpiredTimeCapReachedCount, 2),
        (Member::StatExpireCycleTimeUsed, 51_400),
    ];
    for (member, value) in own_values {
        members.set(member, &[value]);
    }
    snapshot.members = Some(members);
    snapshot.not_counted = Some(1);
    snapshot.candidate = Some(Candidate::Idle(Duration::from_secs(276_480)));
    snapshot.refusals = Some(0);
    snapshot.expired = Some(ExpiredSample { keys: 4_000, looked_at: 400, expired: 80 });
    let before = Snapshot { times: times(0), throttled: Some(Duration::ZERO), ..Snapshot::default() };
    snapshot.times = times(1_750_000_000);
    snapshot.throttled = Some(Duration::from_millis(150));
    snapshot.look = Some(SocketLook { at: snapshot.at, connected: 50, not_seen: 2, ..SocketLook::default() });
    snapshot.at = Duration::from_secs(2);
    snapshot.observed = Observed { evicting: Duration::from_millis(1_500), noop: Duration::from_secs(1) };
    let mut server = new_server();
    server.mode = ProbeMode::EveryCall;
    server.state.age_when_found = Duration::from_secs(300_000);
    server.state.apply(&before);
    server.state.apply(&snapshot);
    server.cycle = Some(after_a_burst());
    server.timeline = Some(Arc::new(Mutex::new(timeline())));
    server
}

fn cycles(durations: &[u64], sampled: u64, expired: u64) -> CycleStats {
    let mut cycles = CycleStats { sampled, expired, ..CycleStats::default() };
    record(&mut cycles.duration, bounds::CYCLE_NS, durations);
    cycles
}

/// Returns a server whose plan lacks most items, with a name that needs escaping.
pub fn partial_server() -> ExportedServer {
    let mut plan = plan();
    plan.identity.build_id = None;
    plan.identity.version = None;
    lose_inner_sites(&mut plan.functions[0]);
    if let FunctionPlan::Expire(planned) = &mut plan.functions[1].plan {
        (planned.starts[0].cycle_type, planned.ends[0].sampled) = (None, None);
    }
    plan.not_found = [
        Item::Inner(EVICTION),
        Item::CycleType,
        Item::KeysSampled,
        Item::Member(Member::StatNumcommands),
        Item::Inner(EVICTION),
    ]
    .map(|item| NotFound { item, reason: Reason::Unrecognised("no place where <all> of it is in reach") })
    .into();
    let snapshot = Snapshot { members: Some(MemberValues::from_iter([(Member::Maxmemory, 0)])), ..Snapshot::default() };
    let mut server = ExportedServer {
        label: "/run/\"<b>\".sock".to_owned(),
        pid: 101,
        exe: PathBuf::from("/opt/<redis> & co/redis-server (deleted)"),
        container: Container { cgroup: "/system.slice/<redis>.service".to_owned(), ..Container::default() },
        container_name: None,
        plan: Arc::new(plan),
        cycle: None,
        foreign_breakpoints: 2,
        knows_no_expired: true,
        ..new_server()
    };
    server.state.apply(&snapshot);
    server
}

fn record<const BUCKETS: usize>(histogram: &mut Histogram<BUCKETS>, bounds: evictscope_abi::Bounds, values: &[u64]) {
    for value in values {
        histogram.record(bounds.bucket(*value), *value);
    }
}

/// Returns a server that executes one command for two seconds, while 3 of its 50 clients wait.
pub fn stalled_server() -> ExportedServer {
    let mut state = ServerState::default();
    let mut timeline = Timeline::new(Duration::ZERO);
    for tenth in 10..=30_u64 {
        let at = Duration::from_millis(100 * tenth);
        let unread =
            |socket| Unread { socket, read_to: 7, answered_to: 0, bytes: 14, came: Some(Duration::from_secs(1)) };
        let snapshot = Snapshot {
            at,
            times: Some(ThreadTimes { cpu_ns: tenth * 100_000_000, waiting_ns: 0 }),
            look: Some(SocketLook {
                at,
                unread: (1..=3).map(unread).collect(),
                connected: 50,
                ..SocketLook::default()
            }),
            ..Snapshot::default()
        };
        state.apply(&snapshot);
        timeline.take_in(&Moment::new(&snapshot, &state));
    }
    ExportedServer { state, timeline: Some(Arc::new(Mutex::new(timeline))), ..new_server() }
}
