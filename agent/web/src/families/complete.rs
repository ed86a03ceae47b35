//! A made-up server about which everything is known, and the same server without one item.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_abi::{EXPIRE, VARIABLES, Variable};
use evictscope_host::Container;
use evictscope_model::{FileAddress, FileOffset, Member};
use evictscope_plan::{
    CallSpan, CycleEndPlan, CycleStartPlan, EVICTION_CALL, EXPIRE_CYCLE, EvictionPlan, Exit, ExpirePlan, FunctionKind,
    FunctionPlan, Identity, Item, Method, Operand, ProbePlan, QuantityPlan, Recipe, Site, Term, TracedFunction,
};
use evictscope_telemetry::{
    Candidate, Cycle, ExpiredSample, MemberValues, ProbeMode, ServerState, Snapshot, SocketLook, ThreadTimes,
};

use crate::published::exported::ExportedServer;

/// Returns a server whose plan is complete, and from which everything was read.
pub fn complete_server() -> ExportedServer {
    server(plan(), every_member())
}

/// Returns that server as it is if `item` was not found; `None` if it is then not watched.
pub fn server_without(item: Item) -> Option<ExportedServer> {
    let (mut plan, mut members) = (plan(), every_member());
    let of_kind = |kind: FunctionKind| usize::from(kind.description == EXPIRY.description);
    let (eviction, expiry) = (EVICTION.index, EXPIRY.index);
    let functions = &mut plan.functions;
    match item {
        Item::Plan => return None,
        Item::Function(kind) if of_kind(kind) == eviction => return None,
        Item::Function(kind) | Item::Inner(kind) | Item::Exits(kind) => {
            lose_inner_sites(&mut functions[of_kind(kind)]);
        }
        Item::Entry(kind) => functions[of_kind(kind)].span.entry = None,
        Item::Quantity(variable) => {
            if let FunctionPlan::Eviction(planned) = &mut functions[eviction].plan {
                planned.quantities.retain(|own| own.quantity != variable);
            }
        }
        Item::CycleType | Item::KeysSampled | Item::KeysExpired => {
            let FunctionPlan::Expire(ExpirePlan { starts, ends }) = &mut functions[expiry].plan else {
                return None;
            };
            match item {
                Item::CycleType => starts[0].cycle_type = None,
                Item::KeysSampled => ends[0].sampled = None,
                _ => ends[0].expired = None,
            }
        }
        Item::Version => plan.identity.version = None,
        Item::Member(member) => members.retain(|own| own != member),
        Item::DebugInfo | Item::Result(_) => {}
    }
    Some(server(plan, members))
}

/// Leaves a function as it is if its inner sites were not found.
pub fn lose_inner_sites(function: &mut TracedFunction) {
    function.span.inner.clear();
    match &mut function.plan {
        FunctionPlan::Eviction(planned) => planned.quantities.clear(),
        FunctionPlan::Expire(planned) => planned.starts.clear(),
        FunctionPlan::Calls => {}
    }
}

fn server(plan: ProbePlan, members: MemberValues) -> ExportedServer {
    let needed = members.get(Member::EvictionPool).and(members.get(Member::MaxmemoryPolicy));
    let counts = [Member::ReplBufferMem, Member::ReplBacklogSize, Member::AofEnabled, Member::AofBuf];
    let are_read = counts.iter().all(|member| members.get(*member).is_some());
    let mut snapshot = Snapshot {
        not_counted: are_read.then_some(0),
        members: Some(members),
        refusals: members.get(Member::StatTotalErrorReplies).map(|_| 0),
        expired: Some(ExpiredSample { keys: 400, looked_at: 400, expired: 0 }),
        candidate: needed.map(|_| Candidate::Idle(Duration::ZERO)),
        times: Some(ThreadTimes { cpu_ns: 0, waiting_ns: 0 }),
        throttled: Some(Duration::ZERO),
        look: Some(SocketLook::default()),
        ..Snapshot::default()
    };
    let mut state = ServerState::default();
    // Times are known from the second reading on.
    for second in 1..=2 {
        snapshot.at = Duration::from_secs(second);
        state.apply(&snapshot);
    }
    let mut cycle = Cycle::new(Duration::ZERO);
    cycle.totals.last_start = Some(Duration::ZERO);
    let sees_evictions = plan.functions[EVICTION.index].has_inner_site();
    ExportedServer {
        label: String::new(),
        pid: 0,
        command: String::new(),
        exe: PathBuf::new(),
        container: Container::default(),
        container_name: None,
        plan: Arc::new(plan),
        mode: ProbeMode::EveryCall,
        withdrawn: None,
        cycles_withdrawn: None,
        overhead_ratio: Some(0.0),
        overhead_budget_ratio: 0.01,
        foreign_breakpoints: 0,
        is_obstructed: false,
        knows_no_expired: false,
        state,
        cycle: Some(cycle).filter(|_| sees_evictions),
        timeline: None,
        since_1970: Duration::from_secs(1_700_000_000),
        records: Arc::default(),
        ended: None,
        read: Instant::now(),
    }
}

/// Returns a value for each member: 1 will do for most. It is a primary without a child whose limit applies.
pub fn every_member() -> MemberValues {
    let value = |member| match member {
        Member::Masterhost | Member::Loading | Member::PausedActions => 0,
        Member::ChildPid => u64::from(u32::MAX),
        _ => 1,
    };
    let all = Member::ALL.iter();
    all.map(|member| (*member, value(*member))).collect()
}

fn site(address: u64) -> Site {
    Site {
        address: FileAddress::new(address),
        file_offset: FileOffset::new(address),
        instruction: "jmp 0x10".to_owned(),
        emulated: true,
    }
}

pub const EVICTION: FunctionKind = FunctionKind { index: 0, description: EVICTION_CALL.description };

const EXPIRY: FunctionKind = FunctionKind { index: EXPIRE as usize, description: EXPIRE_CYCLE.description };

const REGISTER: Operand = Operand::Register { plus: 0, number: 3, width: 8 };

/// Returns a traced function in which everything was found.
fn function(kind: FunctionKind, name: &'static str, address: u64, plan: FunctionPlan) -> TracedFunction {
    TracedFunction {
        kind,
        name,
        address: FileAddress::new(address),
        span: CallSpan {
            entry: Some(site(address)),
            inner: vec![site(address + 0x40)],
            exits: vec![Exit { site: site(address + 0x80), way: None, result: None }],
        },
        plan,
    }
}

fn quantity(quantity: Variable) -> QuantityPlan {
    let term = Term { negative: false, operand: REGISTER };
    QuantityPlan { quantity, recipe: Recipe { terms: vec![term] }, method: Method::Dataflow }
}

pub fn plan() -> ProbePlan {
    let eviction = EvictionPlan { quantities: VARIABLES.map(quantity).into() };
    let expiry = ExpirePlan {
        starts: vec![CycleStartPlan { cycle_type: Some(REGISTER), job: None }],
        ends: vec![CycleEndPlan { sampled: Some(REGISTER), expired: Some(REGISTER) }],
    };
    ProbePlan {
        identity: Identity {
            build_id: Some("ae4d7c97".to_owned()),
            product: Some("redis"),
            version: Some("7.0.15".to_owned()),
            entry_point: FileAddress::new(0x1000),
        },
        functions: vec![
            function(EVICTION, "performEvictions", 0x2000, FunctionPlan::Eviction(eviction)),
            function(EXPIRY, "activeExpireCycle", 0x3000, FunctionPlan::Expire(expiry)),
        ],
        members: Vec::new(),
        not_found: Vec::new(),
    }
}
