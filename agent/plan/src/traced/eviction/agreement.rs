//! Whether the two methods agree: what DWARF says about a variable, and what the data flow holds.
//!
//! A variable is compared at every instruction at which DWARF has a location for it, from the deciding branch to where
//! the paths of evicting calls part. Before that, its slot may hold anything. A variable that is assigned once and has
//! no location there is compared earlier: at the last instruction with a location that every evicting call has passed.

use std::rc::Rc;

use evictscope_abi::{VARIABLES, Variable};
use evictscope_machine::dwarf::{Base, Location, RegisterSum, VariableLocations};
use evictscope_machine::flow::{Atom, Condition, Execution, State, Value, resolve};
use evictscope_model::FileAddress;

use super::inlined::{Form, GoalCopy, after_decision};
use crate::dwarf::DebugInfo;
use crate::item::{Method, Reason, variable_name};
use crate::plan::QuantityPlan;

/// What DWARF says about a variable that the data flow found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The same, at one or more instructions, and nothing else at any.
    Same,
    Different(Reason),
    Silent,
}

/// Compares all that DWARF says about a variable with its value in `goal`.
fn of_variable(execution: &mut Execution<'_>, goal: &GoalCopy, variable: Variable, debug: &DebugInfo) -> Verdict {
    let value = goal.value(variable);
    let inlined: &[VariableLocations] = match goal.form {
        Form::Inlined => &debug.variables.inlined,
        Form::Called => &[],
    };
    let described = debug.variables.local.iter().chain(inlined);
    let places: Vec<&VariableLocations> = described.filter(|place| place.name == variable_name(variable)).collect();
    let mut verdict = Verdict::Silent;
    for (address, state) in points(execution, goal) {
        for location in places.iter().filter_map(|place| place.at(address)) {
            match at_point(execution, goal, &state, (address, location), value) {
                Verdict::Same => verdict = Verdict::Same,
                Verdict::Silent => {}
                different => return different,
            }
        }
    }
    let is_assigned_once = matches!(variable, Variable::MemReported | Variable::Overhead);
    if verdict == Verdict::Silent && is_assigned_once {
        return before(execution, goal, &places, value);
    }
    verdict
}

/// Returns what is known about the values of evicting calls, whatever place holds them.
fn facts_of_evicting_calls(execution: &mut Execution<'_>, goal: &GoalCopy) -> Rc<Vec<Condition>> {
    execution.state_along(goal.deciding_block, goal.over_edge).map(|state| state.facts).unwrap_or_default()
}

/// Returns the deciding branch, and the instructions that all evicting calls pass after it.
fn points(execution: &mut Execution<'_>, goal: &GoalCopy) -> Vec<(FileAddress, State)> {
    let mut points = Vec::new();
    let block = &execution.code.blocks[goal.deciding_block];
    if let Some(branch) = block.instructions.last() {
        // The last state is the one after the branch.
        let before = execution.states_towards(goal.deciding_block, goal.over_edge).into_iter().nth_back(1);
        let facts = facts_of_evicting_calls(execution, goal);
        let before = before.map(|state| State { facts, ..state });
        points.extend(before.map(|state| (branch.address, state)));
    }
    let after = after_decision(execution, goal).into_iter();
    points.extend(after.map(|candidate| (candidate.instruction.address, candidate.state)));
    points
}

/// Compares at the last instruction with a location that every evicting call passes before the deciding branch.
fn before(execution: &mut Execution<'_>, goal: &GoalCopy, places: &[&VariableLocations], value: &Value) -> Verdict {
    let code = execution.code;
    let dominators = code.dominators();
    let Some(passed) = dominators.of(goal.deciding_block) else { return Verdict::Silent };
    let facts = facts_of_evicting_calls(execution, goal);
    for block in passed {
        let states = execution.states_in(block);
        let instructions = &code.blocks[block].instructions;
        for (instruction, state) in instructions.iter().zip(&states).rev() {
            let address = instruction.address;
            let assigned = places.iter().filter(|place| !place.always);
            let Some(location) = assigned.filter_map(|place| place.at(address)).next() else { continue };
            let state = State { facts: facts.clone(), ..state.clone() };
            match at_point(execution, goal, &state, (address, location), value) {
                Verdict::Silent => {}
                decided => return decided,
            }
        }
    }
    Verdict::Silent
}

/// Compares what a location holds at one instruction with the value of a variable.
fn at_point(
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
    state: &State,
    (address, location): (FileAddress, &Location),
    value: &Value,
) -> Verdict {
    match compare(execution, state, location, value) {
        Some(true) => return Verdict::Same,
        Some(false) => {}
        None => return Verdict::Silent,
    }
    let held = VARIABLES
        .into_iter()
        .find(|other| compare(execution, state, location, goal.value(*other)) == Some(true))
        .map_or("something else", variable_name);
    Verdict::Different(Reason::Sentence(format!(
        "at {address:#x} DWARF says that it is {location}, but according to the data flow that is {held}"
    )))
}

/// Returns whether `location` holds `wanted`; `None` if the data flow does not know what it holds.
fn compare(execution: &mut Execution<'_>, state: &State, location: &Location, wanted: &Value) -> Option<bool> {
    let found = match location {
        Location::Value(sum) => value_of(execution, state, sum)?,
        Location::Memory(address) => loaded(execution, state, address)?,
    };
    let found = resolve(&mut execution.atoms, &found, &state.facts);
    let wanted = resolve(&mut execution.atoms, wanted, &state.facts);
    Some(found == wanted)
}

fn value_of(execution: &mut Execution<'_>, state: &State, sum: &RegisterSum) -> Option<Value> {
    let mut value = Value::constant(sum.constant);
    for (base, coefficient) in &sum.terms {
        let base = match base {
            Base::Register(register) => state.registers.get(register.index())?.clone(),
            Base::AtEntry(register) => execution.atoms.value(Atom::Entry(register.number)),
            Base::Loaded(address) => loaded(execution, state, address)?,
        };
        value = value.plus(&base, *coefficient);
    }
    Some(value)
}

/// Returns what the 8 bytes at an address hold, if that is a stack slot that the data flow follows.
fn loaded(execution: &mut Execution<'_>, state: &State, address: &RegisterSum) -> Option<Value> {
    let address = value_of(execution, state, address)?;
    let slot = execution.atoms.stack_offset(&address)?;
    if let Some((value, 8)) = state.stack.get(&slot) { Some(value.clone()) } else { None }
}

/// Confirms the last variable of a definition if DWARF confirms the others:
/// `mem_used = mem_reported - overhead`, `mem_tofree = mem_used - maxmemory`.
fn by_definition(quantities: &mut [QuantityPlan]) {
    use Variable::{Maxmemory, MemReported, MemTofree, MemUsed, Overhead};
    // The first definition again, for what the second confirmed.
    for definition in
        [[MemReported, Overhead, MemUsed], [MemUsed, MemTofree, Maxmemory], [MemReported, Overhead, MemUsed]]
    {
        let defined: Vec<_> =
            (quantities.iter_mut()).filter(|planned| definition.contains(&planned.quantity)).collect();
        let confirmed = defined.iter().filter(|planned| planned.method == Method::Both);
        if defined.len() == 3 && confirmed.count() == 2 {
            defined.into_iter().for_each(|planned| planned.method = Method::Both);
        }
    }
}

/// Compares what the data flow found with what DWARF says. What differs is removed, and returned with what each method
/// says. `confirms_maxmemory` tells whether DWARF has the member `maxmemory` where the data flow reads it.
pub fn of_quantities(
    execution: &mut Execution<'_>,
    goal: &GoalCopy,
    debug: &DebugInfo,
    confirms_maxmemory: bool,
    quantities: &mut Vec<QuantityPlan>,
) -> Vec<(Variable, Reason)> {
    let mut different = Vec::new();
    quantities.retain_mut(|planned| {
        match of_variable(execution, goal, planned.quantity, debug) {
            Verdict::Same => planned.method = Method::Both,
            Verdict::Silent if planned.quantity == Variable::Maxmemory && confirms_maxmemory => {
                planned.method = Method::Both;
            }
            Verdict::Silent => {}
            Verdict::Different(why) => {
                different.push((planned.quantity, why));
                return false;
            }
        }
        true
    });
    by_definition(quantities);
    different
}
