//! A made-up server of which everything is known, and the same without one item.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evictscope_abi::{EXPIRE, VARIABLES, Variable};
use evictscope_host::Container;
use evictscope_plan::{
    EVICTION_CALL, EXPIRE_CYCLE, Exit, FileAddress, FileOffset, FunctionKind, Identity, InnerSite,
    Item, Member, Method, Operand, ProbePlan, QuantityPlan, Recipe, Site, Term, TracedFunction,
};
use evictscope_telemetry::{
    Cycle, Members, ProbeMode, ServerState, Snapshot, SocketLook, ThreadTimes,
};

use super::server::ExportedServer;

/// Returns a server whose plan has everything, and of which everything was read.
pub fn complete_server() -> ExportedServer {
    server(plan(), every_member())
}

/// Returns that server as it is where an item was not found; `None` where it is not watched then.
pub fn server_without(item: Item) -> Option<ExportedServer> {
    let (mut plan, mut members) = (plan(), every_member());
    let of_kind = |kind: FunctionKind| usize::from(kind.description == EXPIRY.description);
    let (eviction, expiry) = (EVICTION.index, EXPIRY.index);
    let functions = &mut plan.functions;
    match item {
        Item::Plan => return None,
        Item::Function(kind) if of_kind(kind) == eviction => return None,
        Item::Function(kind) | Item::Inner(kind) | Item::Exits(kind) => {
            functions[of_kind(kind)].inner = None;
        }
        Item::Entry(kind) => functions[of_kind(kind)].entry = None,
        Item::Quantity(variable) => {
            if let Some(inner) = &mut functions[eviction].inner {
                inner.quantities.retain(|own| own.quantity != variable);
            }
        }
        Item::CycleType => {
            if let Some(inner) = &mut functions[expiry].inner {
                inner.cycle_type = None;
            }
        }
        Item::KeysSampled => functions[expiry].exits[0].sampled = None,
        Item::KeysExpired => functions[expiry].exits[0].expired = None,
        Item::Version => plan.identity.version = None,
        Item::Member(member) => members.retain(|own| own != member),
        Item::DebugInfo | Item::Result(_) => {}
    }
    Some(server(plan, members))
}

fn server(plan: ProbePlan, members: Members) -> ExportedServer {
    let mut snapshot = Snapshot {
        members: Some(members),
        times: Some(ThreadTimes {
            cpu_ns: 0,
            waiting_ns: 0,
        }),
        look: Some(SocketLook::default()),
        ..Snapshot::default()
    };
    let mut state = ServerState::new();
    // Times are known from the second reading on.
    for second in 1..=2 {
        snapshot.at = Duration::from_secs(second);
        state.apply(&snapshot);
    }
    state.overhead = Some(0);
    let mut cycle = Cycle::new(Duration::ZERO);
    cycle.totals.last_start = Some(Duration::ZERO);
    let sees_evictions = plan.functions[EVICTION.index].inner.is_some();
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
        state,
        cycle: Some(cycle).filter(|_| sees_evictions),
        timeline: None,
        records: Arc::default(),
        read: Instant::now(),
    }
}

/// Returns a value of each member. All can be 1.
pub fn every_member() -> Members {
    Member::ALL.iter().map(|member| (*member, 1)).collect()
}

fn site(address: u64) -> Site {
    Site {
        address: FileAddress::new(address),
        file_offset: FileOffset::new(address),
        instruction: "jmp 0x10".to_owned(),
        emulated: true,
    }
}

pub const EVICTION: FunctionKind = FunctionKind {
    index: 0,
    description: EVICTION_CALL.description,
};

const EXPIRY: FunctionKind = FunctionKind {
    index: EXPIRE as usize,
    description: EXPIRE_CYCLE.description,
};

/// Returns an expire cycle of which everything was found.
fn expire_cycle() -> TracedFunction {
    let register = |number| Operand::Register {
        plus: 0,
        number,
        width: 8,
    };
    TracedFunction {
        kind: EXPIRY,
        name: "activeExpireCycle",
        address: FileAddress::new(0x3000),
        entry: Some(site(0x3000)),
        inner: Some(InnerSite {
            site: site(0x3040),
            quantities: Vec::new(),
            cycle_type: Some(register(5)),
        }),
        exits: vec![Exit {
            site: site(0x3080),
            way: None,
            result: None,
            sampled: Some(register(12)),
            expired: Some(register(13)),
        }],
    }
}

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

pub fn plan() -> ProbePlan {
    let inner = InnerSite {
        site: site(0x2040),
        quantities: VARIABLES.map(quantity).into(),
        cycle_type: None,
    };
    let exit = Exit {
        site: site(0x2080),
        way: None,
        result: None,
        sampled: None,
        expired: None,
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
        functions: vec![function, expire_cycle()],
        members: Vec::new(),
        not_found: Vec::new(),
    }
}
