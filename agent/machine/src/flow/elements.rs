//! Addresses that a function computes from pointers.

use std::collections::BTreeSet;

use iced_x86::{Instruction, OpKind};

use super::execution::Execution;
use super::operands::effective_address;
use super::state::State;
use super::value::Value;
use crate::elf::address::FileAddress;

/// Returns the 8-byte globals that hold a pointer from which the function reaches one of these `offsets`: a register holds that
/// address, or an instruction accesses it, even if only in the first iteration of a loop.
pub fn reached_by_pointers(
    execution: &mut Execution<'_>,
    offsets: &[i64],
) -> BTreeSet<FileAddress> {
    let code = execution.code;
    let mut found = BTreeSet::new();
    for block in code.blocks.ids() {
        let mut states = execution.first_turns(block);
        states.extend(execution.state_at(block).cloned());
        for state in states {
            execution.watch_from(block, state, |execution, instruction, state| {
                found.extend(pointers_at(execution, instruction, state, offsets));
            });
        }
    }
    found
}

fn pointers_at(
    execution: &Execution<'_>,
    instruction: &Instruction,
    state: &State,
    offsets: &[i64],
) -> Vec<FileAddress> {
    let accesses = (instruction.op_kinds()).any(|kind| kind == OpKind::Memory);
    let accessed = effective_address(&execution.atoms, state, instruction);
    let accessed = accessed.filter(|_| accesses);
    let addresses = state.registers.iter().chain(&accessed);
    let pointer = |address: &Value| {
        let (atom, offset) = address.as_atom_plus_constant()?;
        let pointer = offsets.contains(&offset).then(|| Value::atom(atom))?;
        execution.atoms.as_global(&pointer)
    };
    addresses.filter_map(pointer).collect()
}
