//! Numbers and agreements: the calling convention, and what instructions, tables of a file and the kernel call
//! registers, conditions and relocations; calls by their bytes.

use evictscope_model::FileAddress;
use gimli::{AArch64, Register};
use object::elf::{R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE};

use crate::ir::Relation;
use crate::isa::convention::Convention;
use crate::isa::unwinding::{Relocation, Unwinding};

/// How many bytes each instruction has.
pub const LENGTH: usize = 4;
/// The number of the stack pointer. In most operands it means the register that is always zero.
pub const SP: u8 = 31;

/// The AAPCS64. `x8` holds where a large result goes, and `x18` the static chain.
pub const CONVENTION: Convention = Convention {
    registers: 32,
    arguments: &[0, 1, 2, 3, 4, 5, 6, 7],
    result: 0,
    vector_arguments: 8,
    stack_pointer: SP,
    frame_pointer: 29,
    caller_saved: 0x7_ffff | 1 << 30,
    preserved_vectors: 0xff00,
    passed: 0x1ff | 1 << 18,
    kept_first: &[
        19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18,
        30,
    ],
    pushed_by_call: 0,
    link: Some(30),
    names: &[
        "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
        "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30", "sp",
    ],
    names_of_halves: &[
        "w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11", "w12", "w13", "w14", "w15", "w16",
        "w17", "w18", "w19", "w20", "w21", "w22", "w23", "w24", "w25", "w26", "w27", "w28", "w29", "w30", "wsp",
    ],
};

/// Returns the number of a condition in instructions.
pub fn condition(relation: Relation) -> u8 {
    match relation {
        Relation::Equal => 0,
        Relation::NotEqual => 1,
        Relation::AboveOrEqual => 2,
        Relation::Below => 3,
        Relation::Negative => 4,
        Relation::NotNegative => 5,
        Relation::Above => 8,
        Relation::BelowOrEqual => 9,
        Relation::GreaterOrEqual => 10,
        Relation::Less => 11,
        Relation::Greater => 12,
        Relation::LessOrEqual => 13,
        Relation::Other(number) => number,
    }
}

/// The DWARF of the AAPCS64, in which registers have the numbers that instructions use. The kernel keeps them in that
/// order, and then where the thread was interrupted.
pub const UNWINDING: Unwinding = Unwinding {
    stack_pointer: AArch64::SP,
    return_address: AArch64::X30,
    instruction_pointer: AArch64::PC,
    addresses: (1 << 48) - 1,
    vendor: gimli::Vendor::AArch64,
    preserved: &[
        AArch64::X19,
        AArch64::X20,
        AArch64::X21,
        AArch64::X22,
        AArch64::X23,
        AArch64::X24,
        AArch64::X25,
        AArch64::X26,
        AArch64::X27,
        AArch64::X28,
        AArch64::X29,
    ],
    numbers: &IDENTITY,
    interrupted: &INTERRUPTED,
};

const IDENTITY: [u8; CONVENTION.registers] = {
    let mut numbers = [0; CONVENTION.registers];
    let mut number = 0;
    while number < numbers.len() {
        numbers[number] = number as u8;
        number += 1;
    }
    numbers
};

const INTERRUPTED: [(Register, usize); CONVENTION.registers + 1] = {
    let mut places = [(AArch64::PC, CONVENTION.registers); CONVENTION.registers + 1];
    let mut number = 0;
    while number < CONVENTION.registers {
        places[number] = (Register(number as u16), number);
        number += 1;
    }
    places
};

/// Returns what a relocation of a type does.
pub fn relocation(kind: u32) -> Option<Relocation> {
    match kind {
        R_AARCH64_RELATIVE => Some(Relocation::Relative),
        R_AARCH64_ABS64 => Some(Relocation::Symbol),
        R_AARCH64_GLOB_DAT | R_AARCH64_JUMP_SLOT => Some(Relocation::Import),
        _ => None,
    }
}

/// Finds direct calls, and returns the address after each, and what it calls.
pub fn calls(begin: FileAddress, code: &[u8]) -> impl Iterator<Item = (FileAddress, FileAddress)> + use<'_> {
    words(code, begin).filter(|(word, _)| word >> 26 == 0b10_0101).map(|(word, at)| {
        let distance = i64::from((word << 6).cast_signed() >> 6) * LENGTH as i64;
        (at.wrapping_add(LENGTH as u64), at.wrapping_add(distance.cast_unsigned()))
    })
}

/// Returns the words of code, with their addresses.
pub fn words(code: &[u8], begin: FileAddress) -> impl Iterator<Item = (u32, FileAddress)> {
    let words = code.as_chunks::<LENGTH>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    words.zip((begin.get()..).step_by(LENGTH).map(FileAddress::new))
}
