//! What single instructions do, whatever values they find, and what a probe on one costs; general registers, by their
//! numbers in x86-64 instructions.

use evictscope_model::FileAddress;
use iced_x86::{Code, FlowControl, Mnemonic, OpAccess, OpKind, Register};

pub use crate::ir::Instruction;

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

/// Returns the displacement of the 8 bytes that an instruction loads from behind a pointer, or pushes, if it only does
/// that.
pub fn loaded_member(instruction: &Instruction) -> Option<u64> {
    let is_load = matches!(instruction.code(), Code::Mov_r64_rm64 | Code::Push_rm64);
    (is_load && instruction.memory_index() == Register::None).then(|| instruction.memory_displacement64())
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
pub fn hit_cost(instruction: &Instruction) -> u32 {
    if is_emulated(instruction) { EMULATED_COST } else { SINGLE_STEPPED_COST }
}

/// Number of the register of a function's result, and of the lower half of products.
pub const RAX: usize = 0;
/// Number of the register of the upper half of products.
pub const RDX: usize = 2;
/// Number of the stack pointer.
pub const RSP: usize = 4;
/// Number of the frame pointer, if a function has one.
pub const RBP: usize = 5;
/// Number of the register of a function's first argument, and of string instructions' destination.
pub const RDI: usize = 7;
/// Numbers of the registers that a call may change (System V ABI).
pub const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// Numbers of the registers of a function's arguments, in their order.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// Numbers of the registers in which a callee can find something meant for it: the arguments and
/// the static chain. `rax` only holds the number of vector registers.
pub const PASSED: [usize; 7] = [1, 2, 6, 7, 8, 9, 10];

const NAMES_8: [&str; 16] =
    ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
const NAMES_4: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d",
    "r15d",
];

pub use crate::ir::RegisterSet;

/// What a function does with registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Callee {
    /// The registers that it reads before it writes them.
    pub reads: RegisterSet,
    /// The registers that it, or what it calls, writes.
    pub writes: RegisterSet,
}

impl Callee {
    /// A function about which nothing is known.
    pub const UNKNOWN: Self = Self { reads: RegisterSet::MAX, writes: RegisterSet::MAX };

    /// Returns whether it may take an argument in a register.
    pub fn reads(self, number: usize) -> bool {
        self.reads & (1 << number) != 0
    }

    /// Returns whether a register may hold another value after the call.
    pub fn writes(self, number: usize) -> bool {
        self.writes & (1 << number) != 0
    }
}

/// Returns the number of a general register, given the whole register or any part of it.
pub fn general_register(register: Register) -> Option<usize> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number())
}

/// Returns whether a register is a high byte, such as `ah`.
pub fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}

/// Returns what a register, or its low 4 bytes, is called.
pub fn register_name(number: u8, width: u8) -> &'static str {
    let names = if width == 4 { NAMES_4 } else { NAMES_8 };
    names.get(usize::from(number)).copied().unwrap_or("?")
}
