//! The stack protector's check at the end of a function.
//!
//! A static build does not keep the name of `__stack_chk_fail()`, so the check itself is recognised, and the path to
//! that call is left out of the graph.

use iced_x86::{Instruction as Decoded, Mnemonic, OpKind, Register};

use super::decode::decoded;
use crate::ir::{Flow, Instruction, Relation, Test};

/// How many instructions before its comparison the canary may be loaded.
const LOAD_DISTANCE: usize = 2;

/// Returns whether a branch is taken if the canary is intact; `None` if it does not depend on that. `before` has the
/// instructions before the branch, the nearest first.
pub fn intact_way<'a>(branch: &Instruction, mut before: impl Iterator<Item = &'a Instruction>) -> Option<bool> {
    let is_taken = match branch.flow {
        Flow::Branch(Test::Compared(Relation::Equal), _) => true,
        Flow::Branch(Test::Compared(Relation::NotEqual), _) => false,
        _ => return None,
    };
    let comparison = Some(decoded(before.next()?)).filter(compares)?;
    let before: Vec<Decoded> = before.take(LOAD_DISTANCE).map(decoded).collect();
    let is_from = |operand, is_meant| is_from(&comparison, &before, operand, is_meant);
    let is_check =
        (is_from(0, is_canary) && is_from(1, is_on_stack)) || (is_from(0, is_on_stack) && is_from(1, is_canary));
    is_check.then_some(is_taken)
}

fn compares(instruction: &Decoded) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Sub | Mnemonic::Xor | Mnemonic::Cmp)
}

/// Returns whether an operand of the comparison is, or was just loaded from, memory that `is_meant` accepts. (At a
/// function's entry the canary is stored in its slot, and then something else may be compared.)
fn is_from(comparison: &Decoded, before: &[Decoded], operand: u32, is_meant: fn(&Decoded) -> bool) -> bool {
    match comparison.op_kind(operand) {
        OpKind::Memory => is_meant(comparison),
        OpKind::Register => {
            let register = comparison.op_register(operand).full_register();
            let mut writers = before.iter().filter(|writer| {
                writer.op0_kind() == OpKind::Register && writer.op0_register().full_register() == register
            });
            writers.next().is_some_and(|load| {
                load.mnemonic() == Mnemonic::Mov && load.op1_kind() == OpKind::Memory && is_meant(load)
            })
        }
        _ => false,
    }
}

/// Returns whether it reads the canary, which is at `%fs:0x28` in the x86-64 ABI of Linux.
fn is_canary(instruction: &Decoded) -> bool {
    instruction.memory_segment() == Register::FS
        && instruction.memory_displacement64() == 0x28
        && instruction.memory_base() == Register::None
}

fn is_on_stack(instruction: &Decoded) -> bool {
    matches!(instruction.memory_base(), Register::RSP | Register::RBP)
}
