//! Why a run ends without a result.

use iced_x86::Instruction;

use crate::code::instruction::address;
use crate::elf::address::FileAddress;

/// Most instructions of one run.
pub const MAX_STEPS: usize = 1 << 14;

/// Why a run ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// An instruction that the machine does not know, or knows too little about.
    #[error("the instruction at {0:#x} is not understood")]
    Instruction(FileAddress),
    /// An access to memory that is not the function's to read or write.
    #[error("the instruction at {0:#x} reads or writes memory it should not")]
    Memory(FileAddress),
    /// No end in sight.
    #[error("it does not end within {MAX_STEPS} instructions")]
    Endless,
}

impl Halt {
    /// Reports an instruction that is not understood.
    pub fn at(instruction: &Instruction) -> Self {
        Self::Instruction(address(instruction))
    }
}
