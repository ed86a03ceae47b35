//! Where a function accesses a global, what it reaches by pointers, and what it counts in loops.

use std::collections::BTreeSet;

use evictscope_model::FileAddress;

use crate::code::graph::BlockId;
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::transfer::Step;
use crate::flow::transfer::places::{MemoryPlace, effective_address, place};
use crate::flow::values::atoms::Atom;
use crate::flow::values::value::Value;
use crate::ir::Instruction;

/// Returns the blocks with an instruction that accesses the global at `address`, through whatever register.
pub fn blocks_that_access(execution: &mut Execution<'_>, address: FileAddress) -> Vec<BlockId> {
    let code = execution.code;
    let mut found = Vec::new();
    for block in code.blocks.ids() {
        let mut is_accessed = false;
        execution.watch(block, |execution, instruction, state| {
            is_accessed |= instruction.accesses().any(|access| {
                let place = place(&mut execution.atoms, state, &access.address);
                matches!(place, MemoryPlace::Global(accessed) if accessed == address)
            });
        });
        if is_accessed {
            found.push(block);
        }
    }
    found
}

/// Returns the 8-byte globals that hold a pointer from which the function reaches one of these `offsets`: a register
/// holds that address, or an instruction accesses it, even if only in the first iteration of a loop, of which so many
/// blocks after its head are looked at.
pub fn reached_by_pointers(execution: &mut Execution<'_>, offsets: &[i64], ahead: u32) -> BTreeSet<FileAddress> {
    let code = execution.code;
    let mut found = BTreeSet::new();
    for block in code.blocks.ids() {
        let turns = execution.first_turns(block).into_iter().map(|state| (block, state, ahead));
        let mut pending: Vec<_> =
            turns.chain(execution.state_at(block).map(|state| (block, state.clone(), 0))).collect();
        while let Some((at, state, ahead)) = pending.pop() {
            let end = execution.watch_from(at, state, |execution, instruction, state| {
                found.extend(pointers_at(execution, instruction, state, offsets));
            });
            for (next, kind) in code.blocks[at].successors.iter().filter(|_| ahead > 0) {
                let state = execution.along_edge(&end, &code.blocks[at], *kind);
                pending.extend(state.map(|state| (*next, state, ahead - 1)));
            }
        }
    }
    found
}

fn pointers_at(
    execution: &mut Execution<'_>,
    instruction: &Instruction,
    state: &State,
    offsets: &[i64],
) -> Vec<FileAddress> {
    let accessed = instruction.accesses();
    let accessed = accessed.filter_map(|access| effective_address(&mut execution.atoms, state, &access.address));
    let accessed: Vec<Value> = accessed.collect();
    let addresses = state.registers.iter().chain(&accessed);
    let pointer = |address: &Value| {
        let (atom, offset) = address.as_atom_plus_constant()?;
        let pointer = offsets.contains(&offset).then(|| Value::atom(atom))?;
        execution.atoms.as_global(&pointer)
    };
    addresses.filter_map(pointer).collect()
}

/// Returns the 8-byte globals to which the loops of a function add 1, by one instruction, or by a
/// load, an addition and a store. This includes what functions inlined into a loop count.
pub fn counted_in_loops(execution: &mut Execution<'_>) -> Vec<FileAddress> {
    let mut found = Vec::new();
    for block in execution.code.loops().into_iter().flatten() {
        execution.watch(block, |execution, instruction, state| {
            found.extend(incremented(execution, state, instruction));
        });
    }
    found
}

/// Returns the 8-byte global that an instruction leaves 1 higher than it was.
fn incremented(execution: &mut Execution<'_>, state: &State, instruction: &Instruction) -> Option<FileAddress> {
    let mut state = state.clone();
    let step = Step::new(instruction, &mut state, &mut execution.atoms, &execution.known);
    let (MemoryPlace::Global(target), after) = step.stored_word()? else { return None };
    let before = after.minus(&Value::constant(1));
    let atom = before.as_atom().and_then(|atom| execution.atoms.get(atom));
    matches!(atom, Some(Atom::Global { address, width: 8, .. }) if *address == target).then_some(target)
}
