//! Numbers and agreements: the calling convention, and what instructions, tables of a file and the kernel call
//! registers, conditions and relocations; calls by their bytes.

use evictscope_model::FileAddress;
use gimli::X86_64;
use object::elf::{R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE};

use crate::ir::{RegisterSet, Relation};
use crate::isa::convention::Convention;
use crate::isa::unwinding::{Relocation, Unwinding};

/// Numbers of registers in instructions.
pub const RAX: u8 = 0;
pub const RCX: u8 = 1;
pub const RDX: u8 = 2;
pub const RSP: u8 = 4;
pub const RBP: u8 = 5;

/// The System V ABI. `rax` only holds the number of vector registers that a variadic function gets, and `r10` the
/// static chain.
pub const CONVENTION: Convention = Convention {
    registers: 16,
    arguments: &[7, 6, 2, 1, 8, 9],
    result: RAX,
    vector_arguments: 8,
    stack_pointer: RSP,
    frame_pointer: RBP,
    caller_saved: set(&[0, 1, 2, 6, 7, 8, 9, 10, 11]),
    preserved_vectors: 0,
    passed: set(&[1, 2, 6, 7, 8, 9, 10]),
    kept_first: &[3, 5, 12, 13, 14, 15, 0, 1, 2, 6, 7, 8, 9, 10, 11],
    pushed_by_call: 8,
    link: None,
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

/// The System V ABI. The kernel keeps `r15`, `r14`, `r13`, `r12`, `rbp`, `rbx`, `r11`, `r10`, `r9`, `r8`, `rax`, `rcx`,
/// `rdx`, `rsi`, `rdi`, the number of the system call, and `rip`, `cs`, `eflags`, `rsp`, `ss`.
pub const UNWINDING: Unwinding = Unwinding {
    stack_pointer: X86_64::RSP,
    return_address: X86_64::RA,
    instruction_pointer: X86_64::RA,
    addresses: u64::MAX,
    vendor: gimli::Vendor::Default,
    preserved: &[X86_64::RBX, X86_64::RBP, X86_64::R12, X86_64::R13, X86_64::R14, X86_64::R15],
    numbers: &[0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15],
    interrupted: &[
        (X86_64::R15, 0),
        (X86_64::R14, 1),
        (X86_64::R13, 2),
        (X86_64::R12, 3),
        (X86_64::RBP, 4),
        (X86_64::RBX, 5),
        (X86_64::R11, 6),
        (X86_64::R10, 7),
        (X86_64::R9, 8),
        (X86_64::R8, 9),
        (X86_64::RAX, 10),
        (X86_64::RCX, 11),
        (X86_64::RDX, 12),
        (X86_64::RSI, 13),
        (X86_64::RDI, 14),
        (X86_64::RA, 16),
        (X86_64::RSP, 19),
    ],
};

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

/// Returns what a relocation of a type does.
pub fn relocation(kind: u32) -> Option<Relocation> {
    match kind {
        R_X86_64_RELATIVE => Some(Relocation::Relative),
        R_X86_64_64 => Some(Relocation::Symbol),
        R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => Some(Relocation::Import),
        _ => None,
    }
}

/// The first byte of a relative call; the 4 bytes of the distance follow.
const CALL: u8 = 0xe8;
/// Bytes of such a call.
const CALL_BYTES: u64 = 5;

/// Finds what looks like a call, and returns the address after each, and what it calls.
pub fn calls(begin: FileAddress, code: &[u8]) -> impl Iterator<Item = (FileAddress, FileAddress)> + use<'_> {
    memchr::memchr_iter(CALL, code).filter_map(move |at| {
        let distance = i32::from_le_bytes(*code.get(at + 1..)?.first_chunk()?);
        let behind = begin.wrapping_add(at as u64 + CALL_BYTES);
        Some((behind, behind.wrapping_add(i64::from(distance).cast_unsigned())))
    })
}

#[cfg(test)]
mod tests {
    use gimli::{Register, X86_64};

    use super::UNWINDING;

    #[test]
    fn the_order_is_that_of_the_kernel() {
        let place = |wanted: Register| UNWINDING.interrupted.iter().find(|(register, _)| *register == wanted);
        for (register, at) in [(X86_64::RA, 16), (X86_64::RSP, 19), (X86_64::RBX, 5), (X86_64::RDI, 14)] {
            assert_eq!(place(register), Some(&(register, at)));
        }
        assert_eq!(place(X86_64::XMM0), None);
    }
}
