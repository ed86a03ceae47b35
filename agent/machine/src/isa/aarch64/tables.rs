//! What is not in instructions: the numbers of registers and relocations in tables of the file; calls by their bytes.

use evictscope_model::FileAddress;
use gimli::{AArch64, Register};
use object::elf::{R_AARCH64_ABS64, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE};

use super::references::words;
use super::{CONVENTION, LENGTH};
use crate::isa::{Relocation, Unwinding};

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
