//! Made-up servers for tests.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evictscope_abi::{
    BIN_NS, BinRing, Check, Histogram, MemberValues, ResultKind, VARIABLES, Variable, bounds,
};

use super::server::ExportedServer;
use crate::telemetry::fixture::empty_snapshot;
use crate::telemetry::{Cycle, EvictionTimes, Observation, ProbeMode, ServerState, Timeline};
use evictscope_plan::{
    EVICTION_CALL, Exit, FileAddress, FileOffset, FunctionKind, Identity, InnerSite, Item, Member,
    Method, NotFound, Operand, ProbePlan, QuantityPlan, Reason, Recipe, Site, Term, TracedFunction,
};

fn site(address: u64) -> Site {
    Site {
        address: FileAddress::new(address),
        file_offset: FileOffset::new(address),
        instruction: "jmp 0x10".to_owned(),
        emulated: true,
    }
}

const EVICTION: FunctionKind = FunctionKind {
    index: 0,
    description: EVICTION_CALL.description,
};

fn quantity(quantity: Variable) -> QuantityPlan {
    let operand = Operand::Register {
        plus: 0,
        number: 3,
        width: 8,
    };
    let negative = false;
    let terms = vec![Term { negative, operand }];
    QuantityPlan {
        quantity,
        recipe: Recipe { terms },
        method: Method::Dataflow,
    }
}

fn plan() -> ProbePlan {
    let inner = InnerSite {
        site: site(0x2040),
        quantities: VARIABLES.map(quantity).into(),
    };
    let exit = Exit {
        site: site(0x2080),
        result: None,
    };
    let function = TracedFunction {
        kind: EVICTION,
        name: "performEvictions",
        address: FileAddress::new(0x2000),
        entry: Some(site(0x2000)),
        inner: Some(inner),
        exits: vec![exit],
    };
    ProbePlan {
        identity: Identity {
            build_id: Some("ae4d7c97".to_owned()),
            product: Some("redis"),
            version: Some("7.0.15".to_owned()),
            entry_point: FileAddress::new(0x1000),
        },
        functions: vec![function],
        members: Vec::new(),
        not_found: Vec::new(),
    }
}

/// Returns a server that was attached just now, in evicting-only mode.
pub fn new_server() -> ExportedServer {
    ExportedServer {
        label: "6379".to_owned(),
        pid: 100,
        exe: PathBuf::from("/usr/bin/redis-check-rdb"),
        plan: Arc::new(plan()),
        mode: ProbeMode::EvictingOnly,
        withdrawn: None,
        overhead_ratio: None,
        state: ServerState::new(),
        cycle: Some(Cycle::new(Duration::from_secs(1))),
        timeline: None,
    }
}

/// Returns a server in every-call mode with all values known.
pub fn busy_server() -> ExportedServer {
    let mut snapshot = empty_snapshot();
    let (calls, evictions) = (&mut snapshot.calls[0], &mut snapshot.evictions);
    for (duration, result) in [(900, ResultKind::Ok), (501_000, ResultKind::Running)] {
        let bucket = bounds::DURATION_NS.bucket(duration);
        calls.inner.record(bucket, duration);
        evictions.evicting_results[result as usize] += 1;
    }
    calls.noop.record(0, 250);
    evictions.noop_results[ResultKind::Ok as usize] = 1;
    let mebi = 1 << 20;
    record(&mut evictions.mem_tofree, bounds::MEM_TOFREE, &[64, 4_000]);
    let (reported, used) = ([64 * mebi, 64 * mebi + 1], [64 * mebi; 2]);
    record(&mut evictions.mem_reported, bounds::MEMORY, &reported);
    record(&mut evictions.mem_used, bounds::MEMORY, &used);
    record(&mut evictions.overhead, bounds::OVERHEAD, &[0, 1]);
    calls.hits = [3, 3, 2, 2];
    calls.lost_exits = 1;
    evictions.checks = [2; 3];
    evictions.check_failures[Check::Allocator as usize] = 1;
    let samples = &mut snapshot.samples;
    samples.cpu_ns = [250_000_000, 1_500_000_000];
    samples.hits = 1_748;
    samples.members = MemberValues {
        read_ns: 1,
        known: 0xff,
        values: [64 * mebi, 1_000, 20, 3, 400_000, 0, 0, 0],
        used_memory: 64 * mebi,
        used_memory_known: 1,
    };
    let buffers = &mut samples.client_buffers;
    record(buffers, bounds::CLIENT_BUFFERS, &[400_000]);
    samples.client_buffers_ns = 1;
    samples.client_buffers_peak = 400_000;
    let mut server = new_server();
    server.mode = ProbeMode::EveryCall;
    server.state.apply(&snapshot);
    server.cycle = Some(after_a_burst());
    server.timeline = Some(Arc::new(Mutex::new(timeline())));
    server
}

/// Returns a server whose plan lacks most items, with a name that needs escaping.
pub fn partial_server() -> ExportedServer {
    let mut plan = plan();
    plan.identity.build_id = None;
    plan.identity.version = None;
    plan.functions[0].inner = None;
    plan.not_found = [
        Item::Inner(EVICTION),
        Item::Member(Member::StatNumcommands),
        Item::Inner(EVICTION),
    ]
    .map(|item| NotFound {
        item,
        reason: Reason::Unrecognised("no place where <all> of it is in reach"),
    })
    .into();
    let mut snapshot = empty_snapshot();
    snapshot.samples.members = MemberValues {
        read_ns: 1,
        known: 1,
        ..MemberValues::default()
    };
    let mut server = ExportedServer {
        label: "/run/\"<b>\".sock".to_owned(),
        pid: 101,
        exe: PathBuf::from("/opt/<redis> & co/redis-server (deleted)"),
        plan: Arc::new(plan),
        cycle: None,
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
    let mut evicting = BinRing::ZERO;
    evicting.spread(51 * BIN_NS, 53 * BIN_NS + 1_000_000);
    let mut cpu = [BinRing::ZERO; 2];
    cpu[0].add(51 * BIN_NS, 19_000_000);
    cpu[1].add(54 * BIN_NS, 10_000_000);
    let unix_time = Duration::from_secs(1_700_000_000) + at(6);
    timeline.take_in(at(6), unix_time, &evicting, &cpu);
    timeline.sample(at(5), Some(64 << 20), Some(1 << 20));
    timeline
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
            lowest_memory: None,
            last_reported: Some(64 << 20),
            client_buffers: Some((evicting - 30 - falling.min(4)) << 20),
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
