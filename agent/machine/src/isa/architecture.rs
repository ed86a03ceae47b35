//! Which instruction sets there are; their numbers and agreements.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::When;
use evictscope_model::FileAddress;
use object::elf::{EM_AARCH64, EM_X86_64};

use super::aarch64::tables as aarch64;
use super::convention::Convention;
use super::unwinding::{Relocation, Unwinding};
use super::x86_64::tables as x86_64;
use crate::ir::Test;

/// An instruction set, with the conventions of Linux on it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86 of 64 bits.
    #[default]
    X86_64,
    /// Arm of 64 bits.
    Aarch64,
}

/// A general register.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// Whose it is.
    pub architecture: Architecture,
    /// Its number in instructions.
    pub number: u8,
}

impl Register {
    /// Returns its index among all registers.
    pub fn index(self) -> usize {
        self.number.into()
    }

    /// Returns what it, or its low 4 bytes, is called.
    pub fn name(self, width: u8) -> &'static str {
        self.architecture.convention().register_name(self.number, width)
    }
}

impl Architecture {
    /// The one that this program runs on.
    pub const HOST: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// Returns the one that an ELF header's `e_machine` stands for.
    pub fn of_machine(machine: u16) -> Option<Self> {
        match machine {
            EM_X86_64 => Some(Self::X86_64),
            EM_AARCH64 => Some(Self::Aarch64),
            _ => None,
        }
    }

    /// Returns what functions agree on.
    pub fn convention(self) -> &'static Convention {
        match self {
            Self::X86_64 => &x86_64::CONVENTION,
            Self::Aarch64 => &aarch64::CONVENTION,
        }
    }

    /// Returns how tables number registers.
    pub(crate) fn unwinding(self) -> &'static Unwinding {
        match self {
            Self::X86_64 => &x86_64::UNWINDING,
            Self::Aarch64 => &aarch64::UNWINDING,
        }
    }

    /// Returns the number that instructions use for a general register that debug information names.
    pub(crate) fn register_of_table(self, register: gimli::Register) -> Option<u8> {
        self.unwinding().numbers.get(usize::from(register.0)).copied()
    }

    /// Returns what a relocation of a type does, if that is understood.
    pub(crate) fn relocation(self, kind: u32) -> Option<Relocation> {
        match self {
            Self::X86_64 => x86_64::relocation(kind),
            Self::Aarch64 => aarch64::relocation(kind),
        }
    }

    /// Finds what looks like a direct call, and returns the address after each, and what it calls.
    pub(crate) fn calls(
        self,
        begin: FileAddress,
        code: &[u8],
    ) -> impl Iterator<Item = (FileAddress, FileAddress)> + use<'_> {
        let x86 = (self == Self::X86_64).then(|| x86_64::calls(begin, code));
        let arm = (self == Self::Aarch64).then(|| aarch64::calls(begin, code));
        x86.into_iter().flatten().chain(arm.into_iter().flatten())
    }

    /// Returns which calls a test lets go where its branch goes, as the BPF programs know them; `None` if they cannot.
    pub(crate) fn when(self, test: Test) -> Option<When> {
        let positive = |when: When, holds| if holds { when } else { when.opposite() };
        match (self, test) {
            (Self::X86_64, Test::Compared(relation)) => Some(When::condition(x86_64::condition(relation))),
            (Self::Aarch64, Test::Compared(relation)) => Some(When::condition(aarch64::condition(relation))),
            (_, Test::Zero { register, width, is_zero }) => Some(positive(When::not_zero(register, width), !is_zero)),
            (_, Test::Bit { register, bit, is_set }) => Some(positive(When::bit(register, bit), is_set)),
            (_, Test::Unknown) => None,
        }
    }
}
