//! Instruction sets: what the analysis asks of one, whatever it is.
//!
//! A file's header says which one its code is for, so files for any of them can be looked at on any host. Each has a
//! folder of its own, and nothing outside that knows its instructions, its registers by name, or its conventions.

mod convention;
mod x86_64;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;
use object::elf::EM_X86_64;

pub use self::convention::Convention;
use crate::ir::{Effect, Instruction};

/// An instruction set, with the conventions of Linux on it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86 of 64 bits.
    #[default]
    X86_64,
}

impl Architecture {
    /// Returns the one that an ELF header's `e_machine` stands for.
    pub fn of_machine(machine: u16) -> Option<Self> {
        (machine == EM_X86_64).then_some(Self::X86_64)
    }

    /// Returns what functions agree on.
    pub fn convention(self) -> &'static Convention {
        match self {
            Self::X86_64 => &x86_64::CONVENTION,
        }
    }

    /// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
    pub fn decode(self, bytes: &[u8], address: FileAddress) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode(bytes, address),
        }
    }

    /// Makes the effects of an instruction.
    pub(crate) fn lift(self, instruction: &Instruction) -> Vec<Effect> {
        match self {
            Self::X86_64 => x86_64::lift(instruction),
        }
    }

    /// Returns an instruction as people write it.
    pub(crate) fn text(self, instruction: &Instruction) -> String {
        match self {
            Self::X86_64 => x86_64::text(instruction),
        }
    }
}
