//! `stat_evictedkeys` by data flow: the one member of `server` that the eviction loop adds 1 to.

use iced_x86::{Instruction, Mnemonic, OpKind};

use crate::code::registers::general_register;
use crate::elf::address::FileAddress;
use crate::flow::atom::Atom;
use crate::flow::execution::Execution;
use crate::flow::state::State;
use crate::flow::value::Value;

/// Returns the 8-byte globals that the loops of the eviction function add 1 to, by one instruction,
/// or by a load, an addition and a store. What functions count that were inlined into a loop is
/// among them.
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
    let by = |constant| instruction.try_immediate(1).is_ok_and(|by| by == constant);
    let adds_one = match instruction.mnemonic() {
        Mnemonic::Inc => true,
        Mnemonic::Add => by(1),
        Mnemonic::Sub => by(u64::MAX),
        Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
            let source = general_register(instruction.op1_register())?;
            let before = state.registers.get(source)?.minus(&Value::constant(1));
            let target = execution.global_operand(state, instruction)?;
            let atom = before.as_atom().and_then(|atom| execution.atoms.get(atom));
            return match atom {
                Some(Atom::Global {
                    address, width: 8, ..
                }) => (*address == target).then_some(target),
                _ => None,
            };
        }
        _ => false,
    };
    adds_one
        .then(|| execution.global_operand(state, instruction))
        .flatten()
}
