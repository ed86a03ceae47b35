//! What a function counts.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::atom::Atom;
use super::execution::Execution;
use super::operands::{Place, place};
use super::state::State;
use super::value::Value;
use crate::code::registers::general_register;
use crate::elf::address::FileAddress;

/// Returns the 8-byte globals to which the loops of a function add 1, by one instruction, or by a
/// load, an addition and a store. This includes what functions inlined into a loop count.
pub fn counted_in_loops(execution: &mut Execution<'_>) -> Vec<FileAddress> {
    let code = execution.code;
    let mut found = Vec::new();
    for block in code.loops().into_iter().flatten() {
        let states = execution.states_in(block);
        for (instruction, state) in code.blocks[block].instructions.iter().zip(states) {
            found.extend(incremented(execution, &state, instruction));
        }
    }
    found
}

/// Returns the 8-byte global that an instruction leaves 1 higher than it was.
fn incremented(
    execution: &mut Execution<'_>,
    state: &State,
    instruction: &Instruction,
) -> Option<FileAddress> {
    if instruction.op0_kind() != OpKind::Memory || instruction.memory_size().size() != 8 {
        return None;
    }
    let Place::Global(target) = place(&mut execution.atoms, state, instruction) else {
        return None;
    };
    let by = |constant| instruction.try_immediate(1).is_ok_and(|by| by == constant);
    let adds_one = match instruction.mnemonic() {
        Mnemonic::Inc => true,
        Mnemonic::Add => by(1),
        Mnemonic::Sub => by(u64::MAX),
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            let source = general_register(instruction.op1_register())?;
            let before = state.registers.get(source)?.minus(&Value::constant(1));
            let atom = before.as_atom().and_then(|atom| execution.atoms.get(atom));
            matches!(atom, Some(Atom::Global { address, width: 8, .. }) if *address == target)
        }
        _ => false,
    };
    adds_one.then_some(target)
}
