//! What is not in instructions: the numbers of registers and relocations in tables of the file; calls by their bytes.

use evictscope_model::FileAddress;
use gimli::X86_64;
use object::elf::{R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE};

use crate::isa::{Relocation, Unwinding};

/// The System V ABI. The kernel keeps `r15`, `r14`, `r13`, `r12`, `rbp`, `rbx`, `r11`, `r10`, `r9`, `r8`, `rax`, `rcx`,
/// `rdx`, `rsi`, `rdi`, the number of the system call, and `rip`, `cs`, `eflags`, `rsp`, `ss`.
pub const UNWINDING: Unwinding = Unwinding {
    stack_pointer: X86_64::RSP,
    return_address: X86_64::RA,
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
