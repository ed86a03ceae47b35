//! Instruction sets: what the analysis asks of one, whatever it is.
//!
//! A file's header says which one its code is for, so files for any of them can be looked at on any host. Each has a
//! folder of its own, and nothing outside that knows its instructions, its registers by name, or its conventions.

mod convention;
mod unwinding;
mod x86_64;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::When;
use evictscope_model::FileAddress;
use object::elf::EM_X86_64;

pub use self::convention::{Convention, numbers};
pub(crate) use self::unwinding::{Relocation, Unwinding};
use crate::elf::image::Image;
use crate::ir::{Effect, Instruction, Test};

/// An instruction set, with the conventions of Linux on it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// x86 of 64 bits.
    #[default]
    X86_64,
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

/// Where a jump can lead.
#[derive(Default)]
pub(crate) struct Targets {
    pub all: Vec<FileAddress>,
    /// The check that limits them, if any: nothing may jump past it to code up to the jump.
    pub check: Option<FileAddress>,
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

    /// Returns how tables number registers.
    pub(crate) fn unwinding(self) -> &'static Unwinding {
        match self {
            Self::X86_64 => &x86_64::UNWINDING,
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
        }
    }

    /// Finds what looks like a direct call, and returns the address after each, and what it calls.
    pub(crate) fn calls(
        self,
        begin: FileAddress,
        code: &[u8],
    ) -> impl Iterator<Item = (FileAddress, FileAddress)> + use<'_> {
        match self {
            Self::X86_64 => x86_64::calls(begin, code),
        }
    }

    /// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
    pub fn decode(self, bytes: &[u8], address: FileAddress) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode(bytes, address),
        }
    }

    /// Returns which calls a test lets go where its branch goes, as the BPF programs know them; `None` if they cannot.
    pub(crate) fn when(self, test: Test) -> Option<When> {
        let positive = |when: When, holds| if holds { when } else { when.opposite() };
        match (self, test) {
            (Self::X86_64, Test::Compared(relation)) => Some(When::condition(x86_64::condition(relation))),
            (_, Test::Zero { register, width, is_zero }) => Some(positive(When::not_zero(register, width), !is_zero)),
            (_, Test::Bit { register, bit, is_set }) => Some(positive(When::bit(register, bit), is_set)),
            (_, Test::Unknown) => None,
        }
    }

    /// Returns an instruction as if it went where the thunk leads that it goes through, if it goes through one.
    pub(crate) fn behind_thunk(self, image: &Image<'_>, mut instruction: Instruction) -> Instruction {
        let flow = match self {
            Self::X86_64 => x86_64::flow_behind(image, &instruction),
        };
        instruction.flow = flow.unwrap_or(instruction.flow);
        instruction
    }

    /// Returns whether a branch is taken if the stack protector finds the stack intact; `None` if it does not depend on
    /// that. `before` has the instructions before the branch, the nearest first.
    pub(crate) fn intact_way<'a>(
        self,
        branch: &Instruction,
        before: impl Iterator<Item = &'a Instruction>,
    ) -> Option<bool> {
        match self {
            Self::X86_64 => x86_64::intact_way(branch, before),
        }
    }

    /// Returns where an indirect jump of the function at `entry` can lead, if it is that of a `switch`. `before` has the
    /// instructions before the jump, the nearest first, and `behind` those that follow it.
    pub(crate) fn switch<'a>(
        self,
        image: &Image<'_>,
        entry: FileAddress,
        jump: &Instruction,
        before: impl Iterator<Item = &'a Instruction> + Clone,
        behind: impl Iterator<Item = &'a Instruction>,
    ) -> Targets {
        match self {
            Self::X86_64 => x86_64::targets(image, entry, jump, before, behind),
        }
    }

    /// Finds what mentions or jumps to an address that `is_target` accepts by its lower half, and also by its own, in
    /// code of a segment, and shows `look` the address of each place, until that returns `false`.
    pub(crate) fn candidates(
        self,
        code: (FileAddress, &[u8]),
        is_fixed: bool,
        is_target: impl Fn(u32) -> bool,
        look: impl FnMut(FileAddress) -> bool,
    ) {
        match self {
            Self::X86_64 => x86_64::candidates(code, is_fixed, is_target, look),
        }
    }

    /// Decodes instructions one after the other, and returns the first that ends past `at`.
    pub(crate) fn decode_over(self, bytes: &[u8], begin: FileAddress, at: FileAddress) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode_over(bytes, begin, at),
        }
    }

    /// Decodes instructions one after the other, without those that are not valid.
    pub(crate) fn decode_all(self, bytes: &[u8], begin: FileAddress) -> impl Iterator<Item = Instruction> + use<'_> {
        match self {
            Self::X86_64 => x86_64::decode_all(bytes, begin),
        }
    }

    /// Returns whether an instruction is one of those that linkers put between functions.
    pub(crate) fn is_padding(self, instruction: &Instruction) -> bool {
        match self {
            Self::X86_64 => x86_64::is_padding(instruction.bytes()),
        }
    }

    /// Returns the addresses that an instruction mentions: as memory, as a number, or as where it goes.
    pub(crate) fn mentioned(self, instruction: &Instruction) -> Vec<FileAddress> {
        match self {
            Self::X86_64 => x86_64::mentioned(instruction),
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
