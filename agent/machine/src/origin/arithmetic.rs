//! The arithmetic that converts units: a number divided by 1000, and one floating-point number times another.

use iced_x86::{Instruction, Mnemonic, OpKind};

use super::{Before, Holder, Origin, Origins, Quotient};
use crate::code::block::InstructionId;
use crate::code::registers::{RAX, RDX, general_register};
use crate::elf::address::FileAddress;

/// What divisions by 1000 divide by.
const THOUSAND: u64 = 1000;
/// What compilers multiply by instead: 2^71 / 1000, rounded up.
const RECIPROCAL: u64 = 0x20c4_9ba5_e353_f7cf;
/// By how many bits they shift the upper half of the product then: 71 - 64.
const SHIFTED: u64 = 7;
/// By how many bits a number is shifted of which only the sign is to stay.
const SIGN: u64 = 63;

impl Origins<'_> {
    /// Returns what `register` holds after an instruction that is a step of a division by 1000. `None` where it
    /// is not.
    pub(super) fn divided(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        register: usize,
        depth: u32,
    ) -> Option<Before> {
        let (step, address) = match instruction.mnemonic() {
            Mnemonic::Imul if instruction.op_count() == 1 && register == RDX => {
                let factors = [
                    self.general(at, RAX, depth)?,
                    self.read(at, instruction, 0, 0, depth)?,
                ];
                match factors {
                    [Origin::Number(RECIPROCAL), Origin::Global(address)]
                    | [Origin::Global(address), Origin::Number(RECIPROCAL)] => {
                        (Quotient::Product, address)
                    }
                    _ => return None,
                }
            }
            Mnemonic::Idiv if register == RAX => {
                let divisor = self.read(at, instruction, 0, 0, depth)?;
                let Origin::Global(address) = self.general(at, RAX, depth)? else {
                    return None;
                };
                let upper = self.general(at, RDX, depth)?;
                let is_whole = upper == Origin::Quotient(Quotient::Sign, address);
                if divisor != Origin::Number(THOUSAND) || !is_whole {
                    return None;
                }
                (Quotient::Whole, address)
            }
            Mnemonic::Cqo if register == RDX => match self.general(at, RAX, depth)? {
                Origin::Global(address) => (Quotient::Sign, address),
                _ => return None,
            },
            Mnemonic::Sar | Mnemonic::Shr => {
                let by = instruction.try_immediate(1).ok()?;
                shifted(self.general(at, register, depth)?, instruction, by)?
            }
            Mnemonic::Add | Mnemonic::Sub => {
                let left = self.general(at, register, depth)?;
                let right = self.read(at, instruction, 1, 0, depth)?;
                joined(left, right, instruction.mnemonic() == Mnemonic::Sub)?
            }
            Mnemonic::Lea if instruction.memory_displacement64() == 0 => {
                let (base, index) = (instruction.memory_base(), instruction.memory_index());
                if base.size() != 8 || instruction.memory_index_scale() != 1 {
                    return None;
                }
                let left = self.general(at, general_register(base)?, depth)?;
                let right = self.general(at, general_register(index)?, depth)?;
                joined(left, right, false)?
            }
            _ => return None,
        };
        Some(Before::Origin(Origin::Quotient(step, address)))
    }

    /// Returns the product of two floating-point numbers of 8 bytes that an instruction computes, whose last two
    /// operands they are.
    pub(super) fn multiplied(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        depth: u32,
    ) -> Option<Before> {
        let right = instruction.op_count().checked_sub(1)?;
        let left = right.checked_sub(1)?;
        let mut factor = |operand| match self.read(at, instruction, operand, 0, depth)? {
            Origin::Global(address) => Some(address),
            _ => None,
        };
        let factors = [factor(left)?, factor(right)?];
        Some(Before::Origin(Origin::Product(factors)))
    }

    /// Returns where the value of a general register comes from.
    fn general(&mut self, at: InstructionId, register: usize, depth: u32) -> Option<Origin> {
        self.trace(at, Holder::Register(register), depth)
    }

    /// Returns where 8 bytes of an operand come from.
    fn read(
        &mut self,
        at: InstructionId,
        instruction: &Instruction,
        operand: u32,
        lane: usize,
        depth: u32,
    ) -> Option<Origin> {
        let is_load = instruction.op_kind(operand) == OpKind::Memory;
        if is_load && instruction.memory_size().size() != 8 {
            return None;
        }
        match self.operand(at, instruction, operand, lane, depth)? {
            Before::Origin(origin) => Some(origin),
            Before::Held(holder, 0) => self.trace(at, holder, depth),
            Before::Held(..) => None,
        }
    }
}

/// Returns what a number is after a shift to the right.
fn shifted(origin: Origin, instruction: &Instruction, by: u64) -> Option<(Quotient, FileAddress)> {
    let is_signed = instruction.mnemonic() == Mnemonic::Sar;
    let sign = match is_signed {
        true => Quotient::Sign,
        false => Quotient::SignBit,
    };
    match (origin, by) {
        (Origin::Quotient(Quotient::Product, address), SHIFTED) if is_signed => {
            Some((Quotient::RoundedDown, address))
        }
        // They all have the sign of the number.
        (
            Origin::Global(address)
            | Origin::Quotient(Quotient::Product | Quotient::RoundedDown, address),
            SIGN,
        ) => Some((sign, address)),
        _ => None,
    }
}

/// Returns what the sum of two numbers is, or their difference.
fn joined(left: Origin, right: Origin, is_difference: bool) -> Option<(Quotient, FileAddress)> {
    let (Origin::Quotient(left, address), Origin::Quotient(right, other)) = (left, right) else {
        return None;
    };
    let is_rounded = match (left, right) {
        (Quotient::RoundedDown, Quotient::Sign) => is_difference,
        (Quotient::RoundedDown, Quotient::SignBit) | (Quotient::SignBit, Quotient::RoundedDown) => {
            !is_difference
        }
        _ => false,
    };
    (is_rounded && address == other).then_some((Quotient::Whole, address))
}
