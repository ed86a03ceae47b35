//! The registers of a frame, as far as they are known.

use gimli::{Register, X86_64};

/// How many registers the unwind tables name: the general ones, and where the frame continues.
const COUNT: usize = 17;

/// The registers that a function preserves.
pub const PRESERVED: [Register; 6] = [
    X86_64::RBX,
    X86_64::RBP,
    X86_64::R12,
    X86_64::R13,
    X86_64::R14,
    X86_64::R15,
];

/// The registers of a frame, as far as they are known, by their numbers in unwind tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers([Option<u64>; COUNT]);

impl Registers {
    /// Makes them from `struct pt_regs`, in which the kernel keeps those of an interrupted thread: `r15`, `r14`, `r13`, `r12`,
    /// `rbp`, `rbx`, `r11`, `r10`, `r9`, `r8`, `rax`, `rcx`, `rdx`, `rsi`, `rdi`, the number of the system call, and `rip`, `cs`,
    /// `eflags`, `rsp`, `ss`.
    pub fn of_interrupted(kept: &[u64; 21]) -> Self {
        const PLACES: [(Register, usize); COUNT] = [
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
        ];
        let mut registers = Self::default();
        for (register, place) in PLACES {
            registers.set(register, kept.get(place).copied());
        }
        registers
    }

    /// Returns where the frame's code continues: the address at which its thread was interrupted, or to which a call returns.
    pub fn instruction_pointer(&self) -> Option<u64> {
        self.get(X86_64::RA)
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(X86_64::RSP)
    }

    /// Returns the same frame, but with its code continuing at another address.
    #[must_use]
    pub fn going_on_at(mut self, address: u64) -> Self {
        self.set(X86_64::RA, Some(address));
        self
    }

    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied().flatten()
    }

    pub(super) fn set(&mut self, register: Register, value: Option<u64>) {
        if let Some(own) = self.0.get_mut(usize::from(register.0)) {
            *own = value;
        }
    }
}

#[cfg(test)]
mod tests {
    use gimli::X86_64;

    use super::Registers;

    #[test]
    fn the_order_is_that_of_the_kernel() {
        let kept = std::array::from_fn(|index| index as u64);
        let registers = Registers::of_interrupted(&kept);
        assert_eq!(registers.instruction_pointer(), Some(16));
        assert_eq!(registers.stack_pointer(), Some(19));
        assert_eq!(registers.get(X86_64::RBX), Some(5));
        assert_eq!(registers.get(X86_64::RDI), Some(14));
        assert_eq!(registers.going_on_at(7).instruction_pointer(), Some(7));
        assert_eq!(registers.get(X86_64::XMM0), None);
    }
}
