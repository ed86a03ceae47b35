//! The form in which `getMaxmemoryState()` is called where the goal is computed. (Why there are two
//! forms: [`inlined`](super::inlined).)
//!
//! The call is recognised by what the callee does, not by its name: of the calls before the eviction
//! loop, it is the first to a function that holds a copy of the calculation. That function is executed
//! with what the caller passes, which decides the tests of its optional results. If it returns "over
//! the limit", it has stored `mem_reported` and `mem_tofree` in two stack slots of the caller. If it
//! returns 0, they hold nothing useful, so the goal site is after the caller's test of the result.

use std::collections::BTreeMap;

use evictscope_machine::code::{BlockId, EdgeKind, FunctionCode, callees};
use evictscope_machine::elf::Image;
use evictscope_machine::flow::{Atom, Atoms, Execution, Flags, Relation, State, Value, resolve, returns};
use evictscope_machine::ir::bit;
use evictscope_machine::isa::numbers;
use evictscope_model::FileAddress;

use super::inlined::{Form, GoalCopy, first_comparison};
use crate::item::Reason;
use crate::members::{self, Counters, MemberError};

/// The calculation in the caller's values, and the allocator's counters behind `mem_reported` or why
/// they are not known.
pub type CalledCopy = (GoalCopy, Result<Counters, MemberError>);

/// What a called copy leaves behind.
struct Callee {
    /// Stack slot of `mem_reported`, by its offset from the stack pointer at the caller's entry.
    mem_reported: i64,
    /// Stack slot of `mem_tofree`.
    mem_tofree: i64,
    counters: Result<Counters, MemberError>,
}

/// A callee compares memory with the limit, but it is not certain what it leaves behind.
const NOT_CERTAIN: &str =
    "getMaxmemoryState() is called, and it is not certain where it leaves mem_reported and mem_tofree";

/// Finds the called copy, and executes the caller again with what is then known. `None` if no callee looks like one.
pub fn find(
    image: &Image<'_>,
    execution: &mut Execution<'_>,
    before_eviction: &[BlockId],
    maxmemory: FileAddress,
) -> Option<Result<CalledCopy, Reason>> {
    let code = execution.code;
    let mut found = None;
    for block in before_eviction.iter().copied() {
        let states = execution.states_in(block);
        for (call, state) in code.blocks[block].instructions.iter().zip(states) {
            let Some(function) = call.callee() else { continue };
            match examine(image, execution, function, state, maxmemory) {
                Some(Ok(callee)) => {
                    let goal = in_caller(execution, before_eviction, call.address, callee, maxmemory);
                    return Some(goal.ok_or(Reason::Unrecognised(NOT_CERTAIN)));
                }
                Some(Err(why)) => found = Some(Err(why)),
                None => {}
            }
        }
    }
    found
}

/// Distinguishes what a caller keeps in registers from what the callee makes.
const KEPT: u32 = 2_000;

/// Executes a callee from the state at its call, and looks for the calculation in it. `None` if it
/// compares nothing with the limit.
fn examine(
    image: &Image<'_>,
    caller: &mut Execution<'_>,
    function: FileAddress,
    mut entry: State,
    maxmemory: FileAddress,
) -> Option<Result<Callee, Reason>> {
    let convention = caller.code.architecture.convention();
    let stack_pointer = &mut entry.registers[convention.stack_pointer()];
    let top = caller.atoms.stack_offset(stack_pointer)?;
    *stack_pointer = stack_pointer.offset(u64::from(convention.pushed_by_call).wrapping_neg());
    let mut code = FunctionCode::decode(image, function).ok()?;
    let mut atoms = caller.atoms.clone();
    // What its callers keep in registers, addresses among them, it only saves and restores.
    let seen = convention.passed | convention.caller_saved | bit(convention.stack_pointer);
    for number in numbers(!seen).take_while(|number| usize::from(*number) < convention.registers) {
        let kept = Atom::Opaque { address: function, index: KEPT + u32::from(number) };
        entry.registers[usize::from(number)] = atoms.value(kept);
    }
    entry.forget_all_slots(&mut atoms);
    entry.flags = Flags::Unknown;
    entry.generation = function;
    // Most callees are ruled out by this alone, before anything is asked about their callees.
    let mut first_look = Execution::run_from(&code, entry.clone(), atoms.clone(), None);
    first_comparison(&mut first_look, maxmemory)?;
    let blocks = code.blocks.ids();
    code.callees = callees::of(image, &code, blocks);
    Some(left_behind(image, &code, entry, &atoms, top, maxmemory).ok_or(Reason::Unrecognised(NOT_CERTAIN)))
}

/// Finds what a callee that holds the calculation leaves behind from `top` on, if that is certain.
fn left_behind(
    image: &Image<'_>,
    code: &FunctionCode,
    entry: State,
    atoms: &Atoms,
    top: i64,
    maxmemory: FileAddress,
) -> Option<Callee> {
    let mut execution = Execution::run_from(code, entry.clone(), atoms.clone(), None);
    let from_start = all_returns(&mut execution).and_then(|returns| {
        let over_limit = over_limit(&mut execution, returns, top)?;
        left_slots(image, &execution, &over_limit, maxmemory)
    });
    from_start.or_else(|| {
        let (block, (over_edge, over_block)) = first_comparison(&mut execution, maxmemory)?;
        let mut within = Execution::run_from(code, entry, atoms.clone(), Some((block, over_edge)));
        if !always_returns_zero(&mut within) {
            return None;
        }
        let state = execution.state_along(block, over_edge)?;
        let returns = returns::to_returns(&mut execution, state, over_block.first())?;
        let over_limit = over_limit(&mut execution, returns, top)?;
        left_slots(image, &execution, &over_limit, maxmemory)
    })
}

/// Returns what is known at each return, on every path from the point after which no loop follows.
/// `None` if paths into a loop and past it meet too late.
fn all_returns(execution: &mut Execution<'_>) -> Option<Vec<State>> {
    let start = returns::behind_loops(execution.code)?;
    let state = execution.state_at(start)?.clone();
    returns::to_returns(execution, state, start.first())
}

/// Returns what each return with a result other than 0 leaves in the caller's slots. `None` if a result is not known.
fn over_limit(execution: &mut Execution<'_>, returns: Vec<State>, top: i64) -> Option<Vec<BTreeMap<i64, Value>>> {
    let mut over_limit = Vec::new();
    let result = execution.code.architecture.convention().result();
    for state in returns {
        if execution.atoms.zero_extended(&state.registers[result], 32).as_constant()? != 0 {
            over_limit.push(stored(execution, &state, top));
        }
    }
    Some(over_limit)
}

/// Finds the two slots that hold `mem_reported` and `mem_tofree` at each of the returns.
fn left_slots(
    image: &Image<'_>,
    execution: &Execution<'_>,
    over_limit: &[BTreeMap<i64, Value>],
    maxmemory: FileAddress,
) -> Option<Callee> {
    let (first, others) = over_limit.split_first()?;
    first.iter().find_map(|(reported_slot, mem_reported)| {
        let same = |slots: &BTreeMap<i64, Value>| slots.get(reported_slot) == Some(mem_reported);
        let (tofree_slot, _) = first.iter().find(|(slot, _)| {
            over_limit
                .iter()
                .all(|slots| (slots.get(*slot)).is_some_and(|value| is_goal(execution, value, mem_reported, maxmemory)))
        })?;
        others.iter().all(same).then(|| Callee {
            mem_reported: *reported_slot,
            mem_tofree: *tofree_slot,
            counters: members::counters_behind(image, mem_reported, execution),
        })
    })
}

/// Returns what the 8-byte slots from `top` on hold: what the callee has stored for its caller.
fn stored(execution: &mut Execution<'_>, state: &State, top: i64) -> BTreeMap<i64, Value> {
    let slots = state.stack.range(top..).filter(|(_, (_, width))| *width == 8);
    slots.map(|(slot, (value, _))| (*slot, resolve(&mut execution.atoms, value, &state.facts))).collect()
}

/// Returns whether `value` is `mem_reported - overhead - maxmemory`, for any overhead.
fn is_goal(execution: &Execution<'_>, value: &Value, mem_reported: &Value, maxmemory: FileAddress) -> bool {
    let taken_off = mem_reported.minus(value);
    taken_off.atoms().any(|atom| {
        let limit = Value::atom(atom);
        let overhead = taken_off.minus(&limit);
        execution.atoms.as_global(&limit) == Some(maxmemory)
            && !overhead.shares_atoms_with(&limit)
            && !overhead.shares_atoms_with(mem_reported)
    })
}

fn always_returns_zero(execution: &mut Execution<'_>) -> bool {
    let code = execution.code;
    let result = code.architecture.convention().result();
    code.blocks.ids().filter(|block| code.blocks[*block].leaves).all(|block| {
        // A block that cannot be reached has no states.
        execution
            .states_in(block)
            .last()
            .is_none_or(|state| execution.atoms.zero_extended(&state.registers[result], 32) == Value::constant(0))
    })
}

/// Returns the calculation in the caller's values: two slots, filled by the call at `site`.
fn in_caller(
    execution: &mut Execution<'_>,
    before_eviction: &[BlockId],
    site: FileAddress,
    callee: Callee,
    maxmemory: FileAddress,
) -> Option<CalledCopy> {
    let mut left_by_call = |index| execution.atoms.value(Atom::Opaque { address: site, index });
    let (mem_reported, mem_tofree) = (left_by_call(1_000), left_by_call(1_001));
    let limit = execution.atoms.value(Atom::Global { address: maxmemory, width: 8, generation: site });
    let mem_used = mem_tofree.plus(&limit, 1);
    let left = [(callee.mem_reported, mem_reported.clone()), (callee.mem_tofree, mem_tofree.clone())];
    execution.known.calls.insert(site, left.to_vec());
    execution.again();
    let (deciding_block, over_edge, over_block) = test_of_result(execution, before_eviction, site)?;
    let goal = GoalCopy {
        form: Form::Called,
        deciding_block,
        over_edge,
        over_block,
        overhead: mem_reported.minus(&mem_used),
        mem_reported,
        mem_used,
        mem_tofree,
        maxmemory: limit,
    };
    Some((goal, callee.counters))
}

/// Returns the branch on whether the call at `site` returned 0, and its edge if it did not.
fn test_of_result(
    execution: &mut Execution<'_>,
    before_eviction: &[BlockId],
    site: FileAddress,
) -> Option<(BlockId, EdgeKind, BlockId)> {
    let code = execution.code;
    before_eviction.iter().copied().find_map(|index| {
        let block = &code.blocks[index];
        let last = block.instructions.last()?;
        if !last.is_branch() {
            return None;
        }
        let states = execution.states_in(index);
        let condition = states.last()?.condition_of(last, &mut execution.atoms)?;
        if condition.right != Value::constant(0) || !is_result_of(execution, &condition.left, site) {
            return None;
        }
        let over_edge = match condition.relation {
            Relation::NotEqual => EdgeKind::Taken,
            Relation::Equal => EdgeKind::FallThrough,
            _ => return None,
        };
        let (over_block, _) = block.successors.iter().find(|(_, kind)| *kind == over_edge)?;
        Some((index, over_edge, *over_block))
    })
}

fn is_result_of(execution: &Execution<'_>, value: &Value, site: FileAddress) -> bool {
    let atom = |value: &Value| value.as_atom().and_then(|atom| execution.atoms.get(atom));
    match atom(value) {
        Some(Atom::Call { site: called_at, .. }) => *called_at == site,
        Some(Atom::ZeroExtended { bits: 32, of }) => {
            matches!(atom(of), Some(Atom::Call { site: called_at, .. }) if *called_at == site)
        }
        _ => false,
    }
}
