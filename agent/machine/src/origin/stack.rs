//! The frame of a function: where the stack pointer is before each instruction.
//!
//! Where that is not certain, behind an alignment or a loop that probes the stack, the stack pointer
//! counts from there anew. Places that count from different points are different places: compilers
//! reach each object on the stack by one of them.

use std::collections::BTreeSet;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use crate::code::block::{BlockId, InstructionId, PerBlock};
use crate::code::graph::FunctionCode;
use crate::code::instruction::{address, is_call, writes};
use crate::code::registers::{RBP, RSP, general_register};
use crate::elf::address::FileAddress;

/// Memory of one instruction's stack pointers, in bytes.
const BYTES_OF_ONE: usize = 64;
/// How far an object reaches, in bytes, that others can write by its address: an array of some numbers.
const REACH: i64 = 64;

/// An address on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackAddress {
    /// Where the stack pointer was from which it counts: at this instruction or block; 0 for the
    /// function's entry.
    since: FileAddress,
    /// Bytes from there.
    offset: i64,
}

impl StackAddress {
    /// Returns the address `bytes` further.
    pub fn plus(self, bytes: u64) -> Self {
        Self {
            offset: self.offset.wrapping_add_unsigned(bytes),
            ..self
        }
    }

    /// Returns the distance from `other`, in bytes, if they count from the same point.
    pub fn distance_from(self, other: Self) -> Option<i64> {
        (self.since == other.since).then(|| self.offset.wrapping_sub(other.offset))
    }
}

/// The registers that point into the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointers {
    pub stack: StackAddress,
    /// `rbp`, where it is the frame pointer.
    pub frame: Option<StackAddress>,
}

impl Pointers {
    /// Returns the address that a memory operand names by its place in the frame.
    pub fn place(&self, instruction: &Instruction) -> Option<StackAddress> {
        match instruction.memory_index() {
            Register::None => self.beginning(instruction),
            _ => None,
        }
    }

    /// Returns the same without the index, if there is one.
    fn beginning(&self, instruction: &Instruction) -> Option<StackAddress> {
        if instruction.segment_prefix() != Register::None {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::RSP => self.stack,
            Register::RBP => self.frame?,
            _ => return None,
        };
        Some(base.plus(instruction.memory_displacement64()))
    }

    /// Executes an instruction.
    fn step(&mut self, instruction: &Instruction, info: &mut InstructionInfoFactory) {
        // What a call pushes its callee pops.
        if is_call(instruction) {
            return;
        }
        let to = match instruction.op0_kind() {
            OpKind::Register => general_register(instruction.op0_register()),
            _ => None,
        };
        let value = match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                match instruction.op1_register() {
                    Register::RSP => Some(self.stack),
                    Register::RBP => self.frame,
                    _ => None,
                }
            }
            Mnemonic::Lea => self.place(instruction),
            Mnemonic::Add | Mnemonic::Sub if to == Some(RSP) => {
                let by = instruction.try_immediate(1).ok();
                by.map(|by| match instruction.mnemonic() {
                    Mnemonic::Add => self.stack.plus(by),
                    _ => self.stack.plus(by.wrapping_neg()),
                })
            }
            Mnemonic::Leave => {
                let frame = self.frame.take();
                let unknown = StackAddress::anew(address(instruction));
                self.stack = frame.map_or(unknown, |frame| frame.plus(8));
                return;
            }
            _ => None,
        };
        let moved = i64::from(instruction.stack_pointer_increment());
        let written = info.info(instruction).used_registers();
        let is_written = |number| {
            written.iter().any(|used| {
                writes(used.access()) && general_register(used.register()) == Some(number)
            })
        };
        if moved != 0 {
            self.stack = self.stack.plus(moved.cast_unsigned());
        } else if is_written(RSP) {
            self.stack = value.unwrap_or(StackAddress::anew(address(instruction)));
        }
        if is_written(RBP) {
            self.frame = value.filter(|_| to == Some(RBP));
        }
    }
}

impl StackAddress {
    const fn anew(since: FileAddress) -> Self {
        Self { since, offset: 0 }
    }
}

/// The frame of one function.
pub struct Frame {
    pointers: PerBlock<Vec<Pointers>>,
    taken: BTreeSet<StackAddress>,
    /// Where the arrays begin whose elements are written by their number.
    numbered: BTreeSet<StackAddress>,
}

impl Frame {
    /// Goes through a function.
    pub fn of(code: &FunctionCode) -> Self {
        let mut info = InstructionInfoFactory::new();
        let mut entries: PerBlock<Option<Pointers>> = code.blocks.filled(None);
        entries[BlockId::ENTRY] = Some(Pointers {
            stack: StackAddress::anew(FileAddress::default()),
            frame: None,
        });
        let mut pointers = code.blocks.filled(Vec::new());
        let mut pending = vec![BlockId::ENTRY];
        while let Some(id) = pending.pop() {
            let Some(mut own) = entries[id] else { continue };
            let block = &code.blocks[id];
            let size = block.instructions.len();
            if !code.budget.spend(size as u64) {
                break;
            }
            let mut before = Vec::with_capacity(size);
            for instruction in &block.instructions {
                before.push(own);
                own.step(instruction, &mut info);
            }
            before.push(own);
            pointers[id] = before;
            for (successor, _) in &block.successors {
                let merged = match entries[*successor] {
                    None => own,
                    Some(known) => known.merged(own, code.blocks[*successor].address()),
                };
                if entries[*successor].replace(merged) != Some(merged) {
                    pending.push(*successor);
                }
            }
        }
        let taken = addresses_taken(code, &pointers);
        let numbered = numbered_elements(code, &pointers, &mut info);
        Self {
            pointers,
            taken,
            numbered,
        }
    }

    /// Returns where the pointers are before an instruction; `None` where control never comes.
    pub fn pointers(&self, at: InstructionId) -> Option<Pointers> {
        self.pointers[at.block].get(at.index).copied()
    }

    /// Returns whether the 8 bytes of a slot can be written otherwise than by their place in the frame.
    pub fn is_shared(&self, slot: StackAddress) -> bool {
        let begins_in = |objects: &BTreeSet<StackAddress>, lowest: i64| {
            let at = |offset| StackAddress { offset, ..slot };
            let mut near = objects.range(at(lowest)..=at(slot.offset.saturating_add(7)));
            near.next().is_some()
        };
        begins_in(&self.taken, slot.offset.saturating_sub(REACH - 1))
            || begins_in(&self.numbered, i64::MIN)
    }
}

impl Pointers {
    /// Returns what holds at the block at `address`, whichever way control comes.
    fn merged(self, other: Self, address: FileAddress) -> Self {
        Self {
            stack: match self.stack == other.stack {
                true => self.stack,
                false => StackAddress::anew(address),
            },
            frame: self.frame.filter(|frame| other.frame == Some(*frame)),
        }
    }
}

/// Returns the addresses on the stack that instructions put into other registers than the two that
/// point into the frame.
fn addresses_taken(
    code: &FunctionCode,
    pointers: &PerBlock<Vec<Pointers>>,
) -> BTreeSet<StackAddress> {
    let mut taken = BTreeSet::new();
    for (id, block) in code.blocks.entries() {
        for (instruction, own) in block.instructions.iter().zip(&pointers[id]) {
            let is_pointer = |register| matches!(register, Register::RSP | Register::RBP);
            let address = match instruction.mnemonic() {
                _ if is_pointer(instruction.op0_register()) => None,
                Mnemonic::Lea => own.place(instruction),
                Mnemonic::Mov => match instruction.op1_register() {
                    Register::RSP => Some(own.stack),
                    Register::RBP => own.frame,
                    _ => None,
                },
                _ => None,
            };
            if let Some(address) = address
                && code.budget.keep(BYTES_OF_ONE)
            {
                taken.insert(address);
            }
        }
    }
    taken
}

/// Returns the arrays on the stack of which instructions write an element whose number is in a register, or
/// take its address.
fn numbered_elements(
    code: &FunctionCode,
    pointers: &PerBlock<Vec<Pointers>>,
    info: &mut InstructionInfoFactory,
) -> BTreeSet<StackAddress> {
    let mut found = BTreeSet::new();
    for (id, block) in code.blocks.entries() {
        for (instruction, own) in block.instructions.iter().zip(&pointers[id]) {
            if instruction.memory_index() == Register::None {
                continue;
            }
            let used = info.info(instruction).used_memory();
            let is_written = used.iter().any(|used| writes(used.access()));
            if (is_written || instruction.mnemonic() == Mnemonic::Lea)
                && let Some(array) = own.beginning(instruction)
                && code.budget.keep(BYTES_OF_ONE)
            {
                found.insert(array);
            }
        }
    }
    found
}
