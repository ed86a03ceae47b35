//! What single instructions do, whatever values they find.

use evictscope_model::FileAddress;
use iced_x86::{FlowControl, OpAccess, OpKind};

pub use iced_x86::Instruction;

/// Returns whether it is a call of any kind.
pub fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Returns whether it is a jump that depends on the flags.
pub fn is_conditional_jump(instruction: &Instruction) -> bool {
    instruction.is_jcc_short_or_near()
}

/// Returns the address of an instruction.
pub fn address(instruction: &Instruction) -> FileAddress {
    FileAddress::new(instruction.ip())
}

/// Returns the address after an instruction.
pub fn next_address(instruction: &Instruction) -> FileAddress {
    FileAddress::new(instruction.next_ip())
}

/// Returns where a direct jump or call goes; 0 if it goes nowhere, or is another instruction.
pub fn target(instruction: &Instruction) -> FileAddress {
    FileAddress::new(instruction.near_branch_target())
}

/// Returns the address of the function that a direct call calls.
pub fn callee(instruction: &Instruction) -> Option<FileAddress> {
    (instruction.flow_control() == FlowControl::Call).then(|| target(instruction))
}

/// Returns the displacement of an 8-byte memory operand: the address, if it is a global.
pub fn word_displacement(instruction: &Instruction) -> Option<FileAddress> {
    let is_word = instruction.memory_size().size() == 8;
    is_word.then(|| FileAddress::new(instruction.memory_displacement64()))
}

/// Returns whether an access changes what it accesses.
pub fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// Returns the width of an operand in bits.
pub fn operand_bits(instruction: &Instruction, operand: u32) -> u8 {
    let bytes = match instruction.op_kind(operand) {
        OpKind::Register => instruction.op_register(operand).size(),
        _ => instruction.memory_size().size(),
    };
    u8::try_from(bytes.saturating_mul(8)).unwrap_or(u8::MAX)
}
