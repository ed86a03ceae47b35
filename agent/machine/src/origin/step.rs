//! One instruction, backwards: what a register or a stack slot held before it.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::stack::StackAddress;
use super::{Before, Holder, Origin, Origins};
use crate::code::block::InstructionId;
use crate::code::instruction::{is_call, writes};
use crate::code::registers::{CALLER_SAVED, general_register};
use crate::elf::address::FileAddress;

impl Origins<'_> {
    /// Returns what a general register's value was before the instruction at `at`.
    pub(super) fn before_register(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        register: usize,
        depth: u32,
    ) -> Option<Before> {
        let unchanged = Some(Before::Held(Holder::Register(register), 0));
        if is_call(instruction) {
            return unchanged.filter(|_| !CALLER_SAVED.contains(&register));
        }
        if !self.writes_register(instruction, |own| general_register(own) == Some(register)) {
            return unchanged;
        }
        let to = instruction.op0_register();
        let is_whole = instruction.op0_kind() == OpKind::Register && to.size() == 8;
        match instruction.mnemonic() {
            Mnemonic::Pop => {
                let top = self.frame.pointers(at)?.stack;
                Some(Before::Held(Holder::Slot(top), 0)).filter(|_| is_whole)
            }
            // The upper half is cleared.
            Mnemonic::Mov if to.size() == 4 => {
                let number = instruction.try_immediate(1).ok()?;
                Some(Before::Origin(Origin::Number(number)))
            }
            Mnemonic::Xor if instruction.op1_register() == to && to.size() >= 4 => {
                Some(Before::Origin(Origin::Number(0)))
            }
            Mnemonic::Imul | Mnemonic::Idiv | Mnemonic::Cqo => {
                self.divided(at, instruction, register, depth)
            }
            _ if !is_whole || general_register(to) != Some(register) => None,
            Mnemonic::Mov => self.operand(at, instruction, 1, 0, depth),
            Mnemonic::Movq | Mnemonic::Vmovq => self.operand(at, instruction, 1, 0, depth),
            Mnemonic::Pextrq | Mnemonic::Vpextrq => {
                let lane = usize::from(instruction.immediate8() & 1);
                self.operand(at, instruction, 1, lane, depth)
            }
            Mnemonic::Lea if instruction.memory_index() == Register::None => computed(instruction),
            Mnemonic::Lea | Mnemonic::Sar | Mnemonic::Shr => {
                self.divided(at, instruction, register, depth)
            }
            Mnemonic::Add | Mnemonic::Sub if instruction.op1_kind() == OpKind::Register => {
                self.divided(at, instruction, register, depth)
            }
            Mnemonic::Add | Mnemonic::Sub => {
                let by = instruction.try_immediate(1).ok()?;
                let by = match instruction.mnemonic() {
                    Mnemonic::Add => by,
                    _ => by.wrapping_neg(),
                };
                Some(Before::Held(Holder::Register(register), by))
            }
            _ => None,
        }
    }

    /// Returns what a stack slot's value was before the instruction at `at`.
    pub(super) fn before_slot(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        slot: StackAddress,
        depth: u32,
    ) -> Option<Before> {
        let unchanged = Some(Before::Held(Holder::Slot(slot), 0));
        let pointers = self.frame.pointers(at)?;
        if is_call(instruction) {
            // What lies below the stack pointer is gone.
            let above = slot.distance_from(pointers.stack);
            return unchanged.filter(|_| above.is_none_or(|above| above >= 0));
        }
        let (place, width) = if instruction.mnemonic() == Mnemonic::Push {
            (pointers.stack.plus(8_u64.wrapping_neg()), 8)
        } else if instruction.op0_kind() == OpKind::Memory && self.writes_memory(instruction) {
            match pointers.place(instruction) {
                Some(place) => (place, instruction.memory_size().size()),
                None => return unchanged,
            }
        } else {
            return unchanged;
        };
        let Some(into) = slot.distance_from(place) else {
            return unchanged;
        };
        let width = i64::try_from(width).ok()?;
        if into >= width || into <= -8 {
            return unchanged;
        }
        if into < 0 || into % 8 != 0 || into + 8 > width {
            return None;
        }
        let lane = usize::try_from(into / 8).ok()?;
        match instruction.mnemonic() {
            Mnemonic::Push => self.operand(at, instruction, 0, 0, depth),
            Mnemonic::Mov => self.operand(at, instruction, 1, lane, depth),
            _ => {
                let lane = Self::lane_stored(instruction, lane)?;
                self.operand(at, instruction, 1, lane, depth)
            }
        }
    }

    /// Returns what the 8 bytes with the number `lane` of an operand are.
    pub(super) fn operand(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        operand: u32,
        lane: usize,
        depth: u32,
    ) -> Option<Before> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                let holder = match general_register(register) {
                    Some(number) if register.size() == 8 && lane == 0 => Holder::Register(number),
                    None if register.is_vector_register() => Holder::Lane {
                        vector: register.full_register().number(),
                        lane,
                    },
                    _ => return None,
                };
                Some(Before::Held(holder, 0))
            }
            OpKind::Memory => self.memory(at, instruction, 8 * lane as u64, depth),
            _ if lane == 0 => {
                let number = instruction.try_immediate(operand).ok()?;
                Some(Before::Origin(Origin::Number(number)))
            }
            _ => None,
        }
    }

    /// Returns what the 8 bytes are that lie `further` bytes into the memory operand.
    fn memory(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        further: u64,
        depth: u32,
    ) -> Option<Before> {
        if let Some(place) = self.frame.pointers(at)?.place(instruction) {
            return Some(Before::Held(Holder::Slot(place.plus(further)), 0));
        }
        let has_segment = instruction.segment_prefix() != Register::None;
        if has_segment || instruction.memory_index() != Register::None {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::None | Register::RIP => 0,
            base => {
                let number = general_register(base).filter(|_| base.size() == 8)?;
                match self.trace(at, Holder::Register(number), depth)? {
                    Origin::Number(base) => base,
                    _ => return None,
                }
            }
        };
        let address = instruction.memory_displacement64().wrapping_add(base);
        let address = FileAddress::new(address.wrapping_add(further));
        Some(Before::Origin(Origin::Global(address)))
    }

    /// Returns whether an instruction changes a register that `is_wanted` names.
    pub(super) fn writes_register(
        &mut self,
        instruction: &Instruction,
        is_wanted: impl Fn(Register) -> bool,
    ) -> bool {
        let used = self.info.info(instruction).used_registers();
        used.iter()
            .any(|used| writes(used.access()) && is_wanted(used.register()))
    }

    fn writes_memory(&mut self, instruction: &Instruction) -> bool {
        let used = self.info.info(instruction).used_memory();
        used.iter().any(|used| writes(used.access()))
    }
}

/// Returns the address that `lea` computes without an index: a number, or a register plus a number.
fn computed(instruction: &Instruction) -> Option<Before> {
    let displacement = instruction.memory_displacement64();
    match instruction.memory_base() {
        Register::None | Register::RIP => Some(Before::Origin(Origin::Number(displacement))),
        base => {
            let number = general_register(base).filter(|_| base.size() == 8)?;
            Some(Before::Held(Holder::Register(number), displacement))
        }
    }
}
