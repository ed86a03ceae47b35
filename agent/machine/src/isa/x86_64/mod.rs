//! x86 of 64 bits: what only this folder knows of it, by way of iced-x86.

mod canary;
mod lift;
mod references;
mod switches;
mod tables;
mod thunks;
mod vector;

use evictscope_model::FileAddress;
use iced_x86::{Code, ConditionCode, Decoder, DecoderOptions, FlowControl, Formatter as _, GasFormatter, Mnemonic};
use iced_x86::{Instruction as Decoded, Register};

pub use self::canary::intact_way;
pub use self::lift::lift;
pub use self::references::{candidates, decode_all, decode_over, is_padding, mentioned};
pub use self::switches::targets;
pub use self::tables::{UNWINDING, calls, relocation};
pub use self::thunks::flow_behind;
use super::Convention;
use crate::ir::{Expression, Flow, Hit, Instruction, RegisterSet, Relation, Test};

/// Numbers of registers in instructions.
const RAX: u8 = 0;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RBP: u8 = 5;

/// The System V ABI. `rax` only holds the number of vector registers that a variadic function gets, and `r10` the static
/// chain.
pub const CONVENTION: Convention = Convention {
    registers: 16,
    arguments: &[7, 6, 2, 1, 8, 9],
    result: RAX,
    vector_arguments: 8,
    stack_pointer: RSP,
    frame_pointer: RBP,
    caller_saved: set(&[0, 1, 2, 6, 7, 8, 9, 10, 11]),
    passed: set(&[1, 2, 6, 7, 8, 9, 10]),
    kept_first: &[3, 5, 12, 13, 14, 15, 0, 1, 2, 6, 7, 8, 9, 10, 11],
    pushed_by_call: 8,
    frame: -8,
    names: &[
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
    ],
    names_of_halves: &[
        "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d",
        "r15d",
    ],
};

const fn set(numbers: &[u8]) -> RegisterSet {
    let (mut set, mut rest) = (0, numbers);
    while let [number, others @ ..] = rest {
        set |= 1 << *number;
        rest = others;
    }
    set
}

/// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
pub fn decode(bytes: &[u8], address: FileAddress) -> Option<Instruction> {
    let decoded = Decoder::with_ip(64, bytes, address.get(), DecoderOptions::NONE).decode();
    let bytes = bytes.get(..decoded.len()).filter(|_| !decoded.is_invalid())?;
    Some(made(&decoded, bytes))
}

fn made(decoded: &Decoded, bytes: &[u8]) -> Instruction {
    let target = || FileAddress::new(decoded.near_branch_target());
    let computed = || Box::new(lift::operand(decoded, 0));
    let flow = match decoded.flow_control() {
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::ConditionalBranch => Flow::Branch(test_of_jump(decoded), target()),
        FlowControl::Call if decoded.is_call_near() => Flow::Call(target()),
        // A system call.
        FlowControl::Call => Flow::IndirectCall(Box::new(Expression::Unknown)),
        FlowControl::IndirectCall => Flow::IndirectCall(computed()),
        FlowControl::IndirectBranch => Flow::IndirectJump(computed()),
        FlowControl::Return => Flow::Return,
        FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => Flow::Stop,
    };
    Instruction::new(super::Architecture::X86_64, FileAddress::new(decoded.ip()), bytes, flow, hit(decoded))
}

/// Decodes an instruction once more.
fn decoded(instruction: &Instruction) -> Decoded {
    Decoder::with_ip(64, instruction.bytes(), instruction.address.get(), DecoderOptions::NONE).decode()
}

/// Returns what a probe costs. The kernel emulates a one-byte `nop`, a direct `jmp` or `call`, a conditional jump, and a
/// `push` of a register, without an operand-size prefix. It turns a long nop into a jump, or newer kernels may: on Linux
/// 6.18 the calling function then loses what it keeps in the red zone.
fn hit(decoded: &Decoded) -> Hit {
    let is_emulated = match decoded.code() {
        Code::Nopd | Code::Nopq => decoded.len() == 1,
        Code::Push_r64 | Code::Jmp_rel8_64 | Code::Jmp_rel32_64 | Code::Call_rel32_64 => true,
        _ => decoded.is_jcc_short_or_near(),
    };
    match decoded.len() {
        _ if is_emulated => Hit::Emulated,
        5 | 10 if decoded.mnemonic() == Mnemonic::Nop => Hit::Forbidden,
        _ => Hit::SingleStepped,
    }
}

/// Returns the instruction in AT&T syntax, as `objdump` prints it.
pub fn text(instruction: &Instruction) -> String {
    let mut text = String::new();
    let mut formatter = GasFormatter::new();
    // Writes numbers as objdump does.
    let options = formatter.options_mut();
    options.set_uppercase_hex(false);
    options.set_branch_leading_zeros(false);
    options.set_displacement_leading_zeros(false);
    formatter.format(&decoded(instruction), &mut text);
    text
}

/// Returns what a jump depends on. A loop over `rcx` is not followed.
fn test_of_jump(jump: &Decoded) -> Test {
    if jump.is_jcc_short_or_near() { Test::Compared(relation(jump.condition_code())) } else { Test::Unknown }
}

fn relation(code: ConditionCode) -> Relation {
    match code {
        ConditionCode::e => Relation::Equal,
        ConditionCode::ne => Relation::NotEqual,
        ConditionCode::b => Relation::Below,
        ConditionCode::be => Relation::BelowOrEqual,
        ConditionCode::a => Relation::Above,
        ConditionCode::ae => Relation::AboveOrEqual,
        ConditionCode::l => Relation::Less,
        ConditionCode::le => Relation::LessOrEqual,
        ConditionCode::g => Relation::Greater,
        ConditionCode::ge => Relation::GreaterOrEqual,
        ConditionCode::s => Relation::Negative,
        ConditionCode::ns => Relation::NotNegative,
        // Overflow and parity.
        other => Relation::Other((other as u8).saturating_sub(ConditionCode::o as u8)),
    }
}

/// Returns the number of a condition in instructions.
pub fn condition(relation: Relation) -> u8 {
    match relation {
        Relation::Below => 2,
        Relation::AboveOrEqual => 3,
        Relation::Equal => 4,
        Relation::NotEqual => 5,
        Relation::BelowOrEqual => 6,
        Relation::Above => 7,
        Relation::Negative => 8,
        Relation::NotNegative => 9,
        Relation::Less => 12,
        Relation::GreaterOrEqual => 13,
        Relation::LessOrEqual => 14,
        Relation::Greater => 15,
        Relation::Other(number) => number,
    }
}

/// Returns the number of a general register, given the whole register or any part of it.
fn general_register(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| full.number() as u8)
}

/// Returns whether a register is a high byte, such as `ah`.
fn is_high_byte(register: Register) -> bool {
    matches!(register, Register::AH | Register::BH | Register::CH | Register::DH)
}
