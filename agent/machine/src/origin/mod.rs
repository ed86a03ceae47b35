//! Where a value comes from, by going back through a function from where it is used.
//!
//! A call with many arguments has its values collected long before: compilers load them early, keep
//! them in registers, vector registers and stack slots, and move them in pairs. Going back follows
//! one value through all that, on every way that leads to its use: what is between does not matter,
//! be it calls or loops. Every way must end at the same origin.
//!
//! A stack slot keeps its value until an instruction writes it by its place in the frame. One whose
//! address is taken can also be written through that address, so nothing is said of it, nor of what
//! lies so near behind it that it can be part of the same array.

mod arithmetic;
mod stack;
mod step;
mod vector;

use std::collections::HashSet;

use iced_x86::{Instruction, InstructionInfoFactory};

use crate::code::block::{BlockId, InstructionId};
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use stack::StackAddress;

pub use stack::Frame;

/// Most blocks that are gone through for one value.
const MAX_VISITS: usize = 1 << 13;
/// How often one value may be computed from others.
const MAX_DEPTH: u32 = 7;
/// Budget for going back over one instruction, in steps.
const STEPS_OF_ONE: u64 = 1;

/// Something that holds 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A general register, by its x86-64 number.
    Register(usize),
    /// 8 bytes of a vector register.
    Lane {
        /// Its number.
        vector: usize,
        /// Which, from the lowest.
        lane: usize,
    },
    /// 8 bytes in the frame.
    Slot(StackAddress),
}

/// What a value is from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Always the same number.
    Number(u64),
    /// What the 8 bytes at an address hold.
    Global(FileAddress),
    /// The product of the floating-point numbers at two addresses.
    Product([FileAddress; 2]),
    /// A step in dividing the signed number of 8 bytes at an address by 1000.
    Quotient(Quotient, FileAddress),
}

/// How far a number is divided by 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quotient {
    /// Multiplied by a fraction of a power of two: the upper half of the product.
    Product,
    /// The quotient, rounded towards minus infinity.
    RoundedDown,
    /// -1 where the number is negative, else 0.
    Sign,
    /// 1 where the number is negative, else 0.
    SignBit,
    /// The quotient, rounded towards 0.
    Whole,
}

/// A value that is looked for: what something holds, and a number that is added to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Wanted {
    holder: Holder,
    added: u64,
}

/// What a value was before one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// What something held, plus a number.
    Held(Holder, u64),
    Origin(Origin),
}

/// Where the values in a function come from.
pub struct Origins<'a> {
    code: &'a FunctionCode,
    frame: Frame,
    info: InstructionInfoFactory,
}

impl<'a> Origins<'a> {
    /// Makes them for a function all of whose code is known.
    pub fn new(code: &'a FunctionCode) -> Self {
        Self {
            code,
            frame: Frame::of(code),
            info: InstructionInfoFactory::new(),
        }
    }

    /// Returns where the value comes from that `register` holds before an instruction, if that is
    /// the same on every way there.
    pub fn of_register(&mut self, at: InstructionId, register: usize) -> Option<Origin> {
        self.trace(at, Holder::Register(register), MAX_DEPTH)
    }

    /// Does the same for the 8 bytes `distance` above the stack pointer.
    pub fn of_stack(&mut self, at: InstructionId, distance: u64) -> Option<Origin> {
        let top = self.frame.pointers(at)?.stack;
        self.trace(at, Holder::Slot(top.plus(distance)), MAX_DEPTH)
    }

    /// Does the same for the lower 8 bytes of a vector register.
    pub fn of_vector(&mut self, at: InstructionId, vector: usize) -> Option<Origin> {
        self.trace(at, Holder::Lane { vector, lane: 0 }, MAX_DEPTH)
    }

    fn trace(&mut self, at: InstructionId, holder: Holder, depth: u32) -> Option<Origin> {
        let depth = depth.checked_sub(1)?;
        let mut found = None;
        let mut seen = HashSet::new();
        let mut pending = vec![(at, Wanted { holder, added: 0 })];
        while let Some((at, wanted)) = pending.pop() {
            match self.before_block(at, wanted, depth)? {
                Before::Origin(origin) => {
                    if found.replace(origin).is_some_and(|other| other != origin) {
                        return None;
                    }
                }
                // What a caller left is no origin.
                Before::Held(..) if at.block == BlockId::ENTRY => return None,
                Before::Held(holder, added) => {
                    let wanted = Wanted { holder, added };
                    for predecessor in &self.code.blocks[at.block].predecessors {
                        if seen.insert((*predecessor, wanted)) {
                            let end = self.code.blocks[*predecessor].instructions.len();
                            pending.push((predecessor.instruction(end), wanted));
                        }
                    }
                    if seen.len() > MAX_VISITS {
                        return None;
                    }
                }
            }
        }
        found
    }

    /// Goes back from an instruction to the beginning of its block, or to the origin. Fails where
    /// the value is not understood.
    fn before_block(&mut self, at: InstructionId, wanted: Wanted, depth: u32) -> Option<Before> {
        let code = self.code;
        let Wanted {
            mut holder,
            mut added,
        } = wanted;
        let instructions = code.blocks[at.block].instructions.get(..at.index)?;
        for (index, instruction) in instructions.iter().enumerate().rev() {
            if !code.budget.spend(STEPS_OF_ONE) {
                return None;
            }
            if let Holder::Slot(slot) = holder
                && self.frame.is_shared(slot)
            {
                return None;
            }
            let here = at.block.instruction(index);
            match self.before(here, instruction, holder, depth)? {
                Before::Held(before, more) => {
                    holder = before;
                    added = added.wrapping_add(more);
                }
                Before::Origin(Origin::Number(number)) => {
                    let sum = number.wrapping_add(added);
                    return Some(Before::Origin(Origin::Number(sum)));
                }
                other => return (added == 0).then_some(other),
            }
        }
        Some(Before::Held(holder, added))
    }

    fn before(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        holder: Holder,
        depth: u32,
    ) -> Option<Before> {
        match holder {
            Holder::Register(register) => self.before_register(at, instruction, register, depth),
            Holder::Lane { vector, lane } => self.before_lane(at, instruction, vector, lane, depth),
            Holder::Slot(slot) => self.before_slot(at, instruction, slot, depth),
        }
    }
}
