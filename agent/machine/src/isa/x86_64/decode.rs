//! Decodes instructions: how control goes on after one, what a probe on it costs, and its text.

use evictscope_model::FileAddress;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Formatter as _, GasFormatter, Instruction as Decoded, Mnemonic,
};

use super::operands::{operand, relation};
use crate::ir::{Expression, Flow, Hit, Instruction, Test};
use crate::isa::architecture::Architecture;

/// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
pub fn decode(bytes: &[u8], address: FileAddress) -> Option<Instruction> {
    let decoded = Decoder::with_ip(64, bytes, address.get(), DecoderOptions::NONE).decode();
    let bytes = bytes.get(..decoded.len()).filter(|_| !decoded.is_invalid())?;
    Some(made(&decoded, bytes))
}

/// Makes an instruction of ours.
pub fn made(decoded: &Decoded, bytes: &[u8]) -> Instruction {
    let target = || FileAddress::new(decoded.near_branch_target());
    let computed = || Box::new(operand(decoded, 0));
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
    Instruction::new(Architecture::X86_64, FileAddress::new(decoded.ip()), bytes, flow, hit(decoded))
}

/// Decodes an instruction once more.
pub fn decoded(instruction: &Instruction) -> Decoded {
    Decoder::with_ip(64, instruction.bytes(), instruction.address.get(), DecoderOptions::NONE).decode()
}

/// Returns what a probe costs. The kernel emulates a one-byte `nop`, a direct `jmp` or `call`, a conditional jump, and
/// a
/// `push` of a register, without an operand-size prefix. It turns a long nop into a jump, or newer kernels may: on
/// Linux
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
