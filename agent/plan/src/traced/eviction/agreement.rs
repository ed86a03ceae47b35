//! Whether the two methods agree: what DWARF says of a variable, against what the data flow holds.
//!
//! A variable is compared at every instruction from the branch that decides on, up to where the ways
//! of evicting calls part, at which DWARF has a location for it. Before, its slot may hold anything.
//! Where a variable has none there, one that is assigned once is compared at the last instruction
//! before at which it has one, of those that every evicting call has passed.

use evictscope_abi::{VARIABLES, Variable};
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::NodeIndex;

use crate::dwarf::{Base, DebugInfo, Location, Sum, VariableLocations};
use crate::flow::execution::Execution;
use crate::flow::resolution::resolve;
use crate::flow::state::State;
use crate::flow::atom::Atom;
use crate::flow::value::Value;
use crate::plan::{MemberPlan, Method, ProbePlan, VariablePlan, variable_name};
use crate::traced::eviction::inlined::{self, Form, GoalCopy};

/// What the allocator's counter is called, in plans and in Redis.
const COUNTER: &str = "used_memory";

/// What DWARF has to say about a variable that the data flow found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same, at one instruction at least, and nothing else at any.
    Same,
    /// Something else.
    Different(String),
    /// Nothing.
    Silent,
}

/// Compares all that DWARF says about one of the four goal variables with its value in `goal`.
pub fn of_variable(
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
    variable: Variable,
    debug: &DebugInfo,
) -> Verdict {
    let value = match variable {
        Variable::MemReported => &goal.mem_reported,
        Variable::Overhead => &goal.overhead,
        Variable::MemUsed => &goal.mem_used,
        Variable::MemTofree => &goal.mem_tofree,
        Variable::Maxmemory => return Verdict::Silent,
    };
    let inlined: &[VariableLocations] = match goal.form {
        Form::Inlined => &debug.variables.inlined,
        Form::Called => &[],
    };
    let own = debug.variables.own.iter().chain(inlined);
    let places: Vec<&VariableLocations> = own.filter(|own| own.variable == variable).collect();
    let mut verdict = Verdict::Silent;
    for (address, state) in points(execution, goal) {
        for location in places.iter().filter_map(|place| place.at(address)) {
            match compare(execution, &state, location, value) {
                Some(true) => verdict = Verdict::Same,
                Some(false) => return different(execution, goal, &state, address, location),
                None => {}
            }
        }
    }
    let is_assigned_once = matches!(variable, Variable::MemReported | Variable::Overhead);
    if verdict == Verdict::Silent && is_assigned_once {
        return before(execution, goal, &places, value);
    }
    verdict
}

/// The deciding branch, and the instructions that all evicting calls pass after it.
fn points(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<(u64, State)> {
    let mut points = Vec::new();
    let block = execution.code.blocks.get(goal.deciding_block);
    if let Some(branch) = block.and_then(|block| block.instructions.last()) {
        // The last state is the one behind the branch.
        let before = execution
            .states_in(goal.deciding_block)
            .into_iter()
            .nth_back(1);
        points.extend(before.map(|state| (branch.ip(), state)));
    }
    let after = inlined::after_decision(execution, goal).into_iter();
    points.extend(after.map(|candidate| (candidate.instruction.ip(), candidate.state)));
    points
}

/// Compares at the last instruction that every evicting call passes before the deciding branch and
/// at which there is a location.
fn before(
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
    places: &[&VariableLocations],
    value: &Value,
) -> Verdict {
    let code = execution.code;
    let graph = code.graph();
    let dominators = simple_fast(&graph, NodeIndex::new(0));
    let Some(passed) = dominators.dominators(NodeIndex::new(goal.deciding_block)) else {
        return Verdict::Silent;
    };
    for block in passed.map(NodeIndex::index) {
        let states = execution.states_in(block);
        let instructions = code
            .blocks
            .get(block)
            .map_or(&[][..], |block| &block.instructions);
        for (instruction, state) in instructions.iter().zip(&states).rev() {
            let located = places
                .iter()
                .filter(|place| !place.always)
                .find_map(|place| place.at(instruction.ip()));
            let Some(location) = located else { continue };
            match compare(execution, state, location, value) {
                Some(true) => return Verdict::Same,
                Some(false) => {
                    return different(execution, goal, state, instruction.ip(), location);
                }
                None => {}
            }
        }
    }
    Verdict::Silent
}

/// What each method says.
fn different(
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
    state: &State,
    address: u64,
    location: &Location,
) -> Verdict {
    let known = [
        (Variable::MemReported, &goal.mem_reported),
        (Variable::Overhead, &goal.overhead),
        (Variable::MemUsed, &goal.mem_used),
        (Variable::MemTofree, &goal.mem_tofree),
        (Variable::Maxmemory, &goal.maxmemory),
    ];
    let held = known
        .into_iter()
        .find(|(_, value)| compare(execution, state, location, value) == Some(true))
        .map_or("something else", |(variable, _)| variable_name(variable));
    Verdict::Different(format!(
        "at {address:#x} DWARF says that it is {location}, but by the data flow that is {held}"
    ))
}

/// Whether what is at `location` is `wanted`; `None` where the data flow does not know what is there.
fn compare(
    execution: &mut Execution<'_>,
    state: &State,
    location: &Location,
    wanted: &Value,
) -> Option<bool> {
    let found = match location {
        Location::Value(sum) => value_of(execution, state, sum)?,
        Location::Memory(address) => loaded(execution, state, address)?,
    };
    let found = resolve(&mut execution.atoms, &found, &state.facts);
    let wanted = resolve(&mut execution.atoms, wanted, &state.facts);
    Some(found == wanted)
}

fn value_of(execution: &mut Execution<'_>, state: &State, sum: &Sum) -> Option<Value> {
    let mut value = Value::constant(sum.constant);
    for (base, coefficient) in &sum.terms {
        let base = match base {
            Base::Register(number) => state.registers.get(usize::from(*number))?.clone(),
            Base::AtEntry(number) => execution.atoms.value(Atom::Entry(*number)),
            Base::Loaded(address) => loaded(execution, state, address)?,
        };
        value = value.plus(&base, *coefficient);
    }
    Some(value)
}

/// What the 8 bytes at an address hold, where that is a stack slot that the data flow follows.
fn loaded(execution: &mut Execution<'_>, state: &State, address: &Sum) -> Option<Value> {
    let address = value_of(execution, state, address)?;
    let slot = execution.stack_offset(&address)?;
    match state.stack.get(&slot) {
        Some((value, 8)) => Some(value.clone()),
        _ => None,
    }
}

/// Where DWARF confirms all but one of the variables that a variable is defined by, it confirms that
/// one too: `mem_used = mem_reported - overhead`, `mem_tofree = mem_used - maxmemory`.
fn by_definition(plan: &mut ProbePlan) {
    let [reported, overhead, used, tofree, limit] = VARIABLES.map(variable_name);
    // Each definition again, for what the other one confirmed.
    for definition in [
        [reported, overhead, used],
        [used, tofree, limit],
        [reported, overhead, used],
    ] {
        let is_in = |own: &VariablePlan| definition.contains(&own.name);
        let has = |method| {
            let variables = plan.variables.iter();
            let of_method = variables.filter(|own| is_in(own) && own.method == method);
            of_method.count()
        };
        if has(Method::Both) == 2 && has(Method::Dataflow) == 1 {
            let variables = plan.variables.iter_mut();
            for variable in variables.filter(|own| is_in(own)) {
                variable.method = Method::Both;
            }
        }
    }
}

/// Compares every member of `server` in the plan, and the allocator's counter, with what DWARF says:
/// what differs is refused, and what only DWARF knows is added.
pub fn of_members(plan: &mut ProbePlan, debug: &DebugInfo) {
    let mut known: Vec<(&'static str, u64, Option<u64>)> = Vec::new();
    if let Some(server) = &debug.server {
        let members = server.members.iter();
        known.extend(members.map(|(name, offset)| {
            let address = server.address.wrapping_add(*offset);
            (*name, address, Some(*offset))
        }));
    }
    // The counter is only confirmed, where it is one: allocators may count in more places than the
    // one of that name.
    let is_one = |own: &MemberPlan| own.name == COUNTER && own.counters.is_none();
    if plan.members.iter().any(is_one) {
        known.extend(debug.counter.map(|address| (COUNTER, address, None)));
    }
    for (name, address, offset) in known {
        let Some(at) = plan.members.iter().position(|member| member.name == name) else {
            plan.refusals.retain(|refusal| refusal.what != name);
            plan.members.push(MemberPlan {
                name,
                address,
                offset,
                method: Method::Dwarf,
                counters: None,
            });
            continue;
        };
        let member = &mut plan.members[at];
        if member.address == address {
            member.method = Method::Both;
            member.offset = offset;
            continue;
        }
        let why = format!(
            "DWARF says that it is at {address:#x}, the {} that it is at {:#x}",
            member.method, member.address
        );
        plan.members.remove(at);
        plan.refuse(name, &why);
        if name == "maxmemory" {
            withdraw_goal(plan);
        }
    }
    confirm_maxmemory(plan);
    by_definition(plan);
}

/// The goal was recognised by the address of `maxmemory`, which is in doubt.
fn withdraw_goal(plan: &mut ProbePlan) {
    plan.variables.iter_mut().for_each(VariablePlan::withdraw);
    plan.sites.goal = None;
    plan.sites.done.clear();
    plan.refuse("goal", "it is not certain where maxmemory is");
}

/// The variable is the member, so what is known of the one goes for the other.
fn confirm_maxmemory(plan: &mut ProbePlan) {
    let name = variable_name(Variable::Maxmemory);
    let is_confirmed = plan
        .members
        .iter()
        .any(|member| member.name == name && member.method == Method::Both);
    for variable in plan.variables.iter_mut().filter(|own| own.name == name) {
        if is_confirmed && variable.method == Method::Dataflow {
            variable.method = Method::Both;
        }
    }
}
