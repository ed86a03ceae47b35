//! Instruction sets: what the analysis asks of one, whatever it is.
//!
//! A file's header says which one its code is for, so files for any of them can be looked at on any host. Each has a
//! folder of its own, and nothing outside that knows its instructions, its registers by name, or its conventions.

mod aarch64;
mod architecture;
mod convention;
mod table;
mod unwinding;
mod x86_64;

use evictscope_model::FileAddress;

pub use self::architecture::{Architecture, Register};
pub use self::convention::{Convention, numbers};
pub(crate) use self::table::Check;
use self::table::Targets;
pub(crate) use self::unwinding::Relocation;
use crate::elf::image::Image;
use crate::ir::{Effect, Instruction, bit};

impl Architecture {
    /// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
    pub fn decode(self, bytes: &[u8], address: FileAddress) -> Option<Instruction> {
        match self {
            Self::X86_64 => x86_64::decode(bytes, address),
            Self::Aarch64 => aarch64::decode(bytes, address),
        }
    }

    /// Returns an instruction as if it went where the thunk leads that it goes through, if it goes through one.
    pub(crate) fn behind_thunk(self, image: &Image<'_>, mut instruction: Instruction) -> Instruction {
        let flow = match self {
            Self::X86_64 => x86_64::flow_behind(image, &instruction),
            Self::Aarch64 => aarch64::flow_behind(image, &instruction),
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
            Self::Aarch64 => aarch64::intact_way(branch, before),
        }
    }

    /// Returns where an indirect jump of the function at `entry` can lead, if it is that of a `switch`. `before` has
    /// the instructions before the jump, the nearest first, and `behind` those that follow it.
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
            Self::Aarch64 => aarch64::targets(image, entry, jump, before),
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
            Self::Aarch64 => aarch64::candidates(code, is_target, look),
        }
    }

    /// Returns the addresses that the instruction at `at` mentions, or that the bytes there are a part of, in code that
    /// begins at `begin`.
    pub(crate) fn mentioned_at(self, bytes: &[u8], begin: FileAddress, at: FileAddress) -> Vec<FileAddress> {
        match self {
            Self::X86_64 => x86_64::mentioned_at(bytes, begin, at),
            Self::Aarch64 => aarch64::mentioned_at(bytes, begin, at).into_iter().collect(),
        }
    }

    /// Decodes instructions one after the other, without those that are not valid.
    pub(crate) fn decode_all(self, bytes: &[u8], begin: FileAddress) -> impl Iterator<Item = Instruction> + use<'_> {
        let x86 = (self == Self::X86_64).then(|| x86_64::decode_all(bytes, begin));
        let arm = (self == Self::Aarch64).then(|| aarch64::decode_all(bytes, begin));
        x86.into_iter().flatten().chain(arm.into_iter().flatten())
    }

    /// Returns the slot that the code at an address jumps through, to a function of a shared library.
    pub(crate) fn slot_of_stub(self, image: &Image<'_>, address: FileAddress) -> Option<FileAddress> {
        match self {
            Self::X86_64 => x86_64::slot_of_stub(image, address),
            Self::Aarch64 => aarch64::slot_of_stub(image, address),
        }
    }

    /// Returns whether an instruction is one of those that linkers put between functions.
    pub(crate) fn is_padding(self, instruction: &Instruction) -> bool {
        match self {
            Self::X86_64 => x86_64::is_padding(instruction.bytes()),
            Self::Aarch64 => aarch64::is_padding(instruction.bytes()),
        }
    }

    /// Returns whether an instruction leaves the stack pointer as it is, and the link register but for a signature.
    pub(crate) fn keeps_link(self, instruction: &Instruction) -> bool {
        let Convention { link: Some(link), stack_pointer, .. } = self.convention() else { return false };
        let kept = bit(*link) | bit(*stack_pointer);
        let is_kept = || instruction.effects().iter().all(|effect| effect.writes() & kept == 0);
        (self == Self::Aarch64 && aarch64::keeps_link(instruction.bytes())) || (!instruction.is_call() && is_kept())
    }

    /// Returns what finds the addresses that instructions mention.
    pub fn mentions(self) -> Mentions {
        Mentions { architecture: self, pages: aarch64::Pages::default() }
    }

    /// Makes the effects of an instruction.
    pub(crate) fn lift(self, instruction: &Instruction) -> Vec<Effect> {
        match self {
            Self::X86_64 => x86_64::lift(instruction),
            Self::Aarch64 => aarch64::lift(instruction),
        }
    }

    /// Returns an instruction as people write it.
    pub(crate) fn text(self, instruction: &Instruction) -> String {
        match self {
            Self::X86_64 => x86_64::text(instruction),
            Self::Aarch64 => aarch64::text(instruction),
        }
    }
}

/// Finds the addresses that instructions mention. They are given one after the other, as they are in memory, because an
/// address can be made in two steps.
pub struct Mentions {
    architecture: Architecture,
    pages: aarch64::Pages,
}

impl Mentions {
    /// Returns the addresses that the next instruction mentions: as memory, as a number, or as where it goes.
    pub fn of(&mut self, instruction: &Instruction) -> Vec<FileAddress> {
        match self.architecture {
            Architecture::X86_64 => x86_64::mentioned(instruction),
            Architecture::Aarch64 => self.pages.mentioned(instruction).into_iter().collect(),
        }
    }
}
