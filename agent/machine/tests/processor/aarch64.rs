//! What of the test is of aarch64: its flags, which forms of instructions a program has, and how one finds memory.

use evictscope_machine::isa::Architecture;
use fARM64::{
    Code, Decoder, DecoderOptions, ExtendType, FlowControl, Instruction, MemIndexMode, Mnemonic, Operand, RegClass,
    Register,
};

use super::flags::Flags;
use super::random::Random;
use super::runner::{CODE, FAR_PAGE, PAGE, State};
use super::{Example, Examples, Processor, keep_example};

pub const PROCESSOR: Processor = Processor {
    architecture: Architecture::Aarch64,
    compiler: "aarch64-linux-gnu-gcc",
    // With those, it would keep vector registers in two places.
    emulator: Some("qemu-aarch64 -cpu max,sve=off,sme=off"),
    others: "aarch64.s",
    vectors: 32,
    addresses: (1 << 56) - 1,
    flags: Flags {
        carry: 1 << 29,
        is_borrow: false,
        zero: 1 << 30,
        negative: 1 << 31,
        overflow: 1 << 28,
        all: 0b1111 << 28,
    },
    add_examples,
    example,
};

fn add_examples(examples: &mut Examples, code: &[u8]) -> usize {
    let mut count = 0;
    for bytes in code.as_chunks::<4>().0 {
        let instruction = decode(bytes);
        if !instruction.is_invalid() && !is_excluded(&instruction) {
            count += 1;
            keep_example(examples, form(&instruction), bytes);
        }
    }
    count
}

fn decode(bytes: &[u8]) -> Instruction {
    Decoder::new(bytes, CODE, DecoderOptions::default()).decode()
}

/// Returns whether it calls the kernel, goes on forever, waits, or changes how the processor works.
fn is_excluded(instruction: &Instruction) -> bool {
    use Code::{Brk, Hlt, Hvc, Smc, Svc, Udf};
    let code = instruction.code();
    matches!(code, Brk | Hlt | Hvc | Smc | Svc | Udf)
        || (instruction.flow_control() != FlowControl::Next && instruction.near_branch_target() == CODE)
        || matches!(code.mnemonic(), Mnemonic::Msr | Mnemonic::Wfe | Mnemonic::Wfi)
}

fn form(instruction: &Instruction) -> (usize, u32) {
    let word = instruction.word();
    let field = |at: u32| word >> at & 31;
    let [to, left, right] = [0, 5, 16].map(field);
    let bits = [to == 31, left == 31, right == 31, to == left, left == right, to == right, field(10) == 0];
    // Kinds of shifts, extensions and conditions; the size of what is in vectors.
    let kinds = word >> 21 & 7 | (word >> 12 & 15) << 3 | (word >> 30) << 7;
    let is_with_number = matches!(word >> 25 & 15, 0b1000 | 0b1001);
    let kinds = if is_with_number { instruction.mnemonic() as u32 } else { kinds };
    let all = bits.into_iter().fold(kinds, |bits, bit| bits << 1 | u32::from(bit));
    (instruction.code() as usize, all)
}

fn number(register: Register) -> Option<usize> {
    let is_zero = matches!(register, Register::Xzr | Register::Wzr);
    (register.class() == RegClass::Gp && !is_zero).then(|| register.number().into())
}

/// Makes an example whose address of memory is in the page, if that is in the instruction alone.
fn example(bytes: &[u8], random: &mut Random) -> Example {
    use Code::{LdrLit32, LdrLit64, LdrLitFp32, LdrLitFp64, LdrLitFp128, LdrswLit};
    let instruction = decode(bytes);
    let mut word = instruction.word();
    if matches!(instruction.code(), LdrLit32 | LdrLit64 | LdrLitFp32 | LdrLitFp64 | LdrLitFp128 | LdrswLit) {
        let distance = FAR_PAGE - CODE + random.below(PAGE / 64) * 64;
        word = word & !(0x7ffff << 5) | (distance as u32 / 4) << 5;
    }
    let operands: Vec<Operand> = (0..instruction.op_count()).map(|index| instruction.op(index)).collect();
    let aim = move |state: &mut State, random: &mut Random| {
        for operand in &operands {
            let alignment = [1, 64][random.below(2) as usize];
            let to = FAR_PAGE + random.below(PAGE / alignment) * alignment;
            match *operand {
                Operand::MemImm { base, imm, mode } => {
                    let moved = if mode == MemIndexMode::PostImm { 0 } else { imm.cast_unsigned() };
                    if let Some(base) = number(base) {
                        state[base] = to.wrapping_sub(moved);
                    }
                }
                Operand::MemExt { base, index, extend, shift } => {
                    let (Some(base), index) = (number(base), number(index)) else { continue };
                    let value = index.map_or(0, |index| state[index]);
                    let value = match extend {
                        ExtendType::Uxtw => value & u64::from(u32::MAX),
                        ExtendType::Sxtw => i64::from(value as i32).cast_unsigned(),
                        _ => value,
                    };
                    if Some(base) != index {
                        state[base] = to.wrapping_sub(value << (shift & 0x7));
                    }
                }
                _ => {}
            }
        }
    };
    Example { bytes: word.to_le_bytes().to_vec(), page: FAR_PAGE, aim: Box::new(aim) }
}
