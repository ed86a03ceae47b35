//! Where a function accesses a global.

use iced_x86::OpKind;

use super::execution::Execution;
use super::operands::{Place, place};
use crate::code::graph::BlockId;
use crate::elf::address::FileAddress;

/// Returns the blocks with an instruction that accesses the global at `address`, through whatever register.
pub fn blocks_that_access(execution: &mut Execution<'_>, address: FileAddress) -> Vec<BlockId> {
    let code = execution.code;
    let mut found = Vec::new();
    for block in code.blocks.ids() {
        let mut is_accessed = false;
        execution.watch(block, |execution, instruction, state| {
            is_accessed |= (instruction.op_kinds()).any(|kind| kind == OpKind::Memory)
                && matches!(
                    place(&mut execution.atoms, state, instruction),
                    Place::Global(accessed) if accessed == address
                );
        });
        if is_accessed {
            found.push(block);
        }
    }
    found
}
