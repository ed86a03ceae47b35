//! The instructions that the kernel emulates under a uprobe.
//!
//! Source: `arch/x86/kernel/uprobes.c`, `branch_setup_xol_ops()` and `push_setup_xol_ops()`. The
//! kernel single-steps every other instruction out of line, which costs about ten times as much.

use iced_x86::{Code, Instruction, Mnemonic};

/// Relative cost of one hit at an instruction that the kernel emulates.
pub const EMULATED_COST: u32 = 1;
/// Relative cost of one hit at an instruction that the kernel single-steps.
pub const SINGLE_STEPPED_COST: u32 = 10;

/// Returns whether the kernel emulates an instruction: a one-byte `nop`, a direct `jmp` or `call`, a
/// conditional jump, or a `push` of a register, without an operand-size prefix.
pub fn is_emulated(instruction: &Instruction) -> bool {
    match instruction.code() {
        Code::Nopd | Code::Nopq => instruction.len() == 1,
        Code::Push_r64 | Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64 => true,
        _ => instruction.is_jcc_short_or_near(),
    }
}

/// Returns whether it is a nop that the kernel turns into a jump, or newer kernels may: on Linux 6.18 the calling
/// function then loses what it keeps in the red zone. No probe ever goes there.
pub fn is_long_nop(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Nop && matches!(instruction.len(), 5 | 10)
}

/// Returns the relative cost of one hit.
pub fn cost(instruction: &Instruction) -> u32 {
    if is_emulated(instruction) { EMULATED_COST } else { SINGLE_STEPPED_COST }
}
