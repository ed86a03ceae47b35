//! Multiplications of numbers of type `double` by a constant.

use std::collections::BTreeSet;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use crate::code::block::BlockId;
use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;

/// Returns the blocks in which something is multiplied by `factor`.
pub fn blocks(image: &Image<'_>, code: &FunctionCode, factor: f64) -> Vec<BlockId> {
    let blocks = code.blocks.entries();
    let averaging = blocks.filter(|(_, block)| multiplies(image, &block.instructions, factor));
    averaging.map(|(id, _)| id).collect()
}

/// Tells whether something is multiplied by `factor`.
fn multiplies(image: &Image<'_>, instructions: &[Instruction], factor: f64) -> bool {
    let mut holding: BTreeSet<Register> = BTreeSet::new();
    for instruction in instructions {
        let register = |operand: u32| {
            let register = instruction.op_register(operand).full_register();
            (instruction.op_kind(operand) == OpKind::Register).then_some(register)
        };
        let source = instruction.op_count().saturating_sub(1);
        let is_held = register(source).is_some_and(|register| holding.contains(&register))
            || is_number(image, instruction, factor);
        let destination = register(0);
        if is_product(instruction) {
            if is_held || destination.is_some_and(|register| holding.contains(&register)) {
                return true;
            }
        } else if let Some(destination) = destination {
            match is_held && is_move(instruction) {
                true => holding.insert(destination),
                false => holding.remove(&destination),
            };
        }
    }
    false
}

/// Tells whether an instruction multiplies numbers of type `double`.
pub fn is_product(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Mulsd | Mnemonic::Mulpd)
}

/// Tells whether an instruction copies the number that its last operand holds.
fn is_move(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movq
            | Mnemonic::Movsd
            | Mnemonic::Movapd
            | Mnemonic::Movaps
            | Mnemonic::Movupd
            | Mnemonic::Movups
    )
}

/// Tells whether an instruction's last operand is a number of type `double`: itself, or a constant in the
/// file, alone or beside another.
fn is_number(image: &Image<'_>, instruction: &Instruction, number: f64) -> bool {
    let source = instruction.op_count().saturating_sub(1);
    if instruction.op_count() > 0 && instruction.op_kind(source) == OpKind::Immediate64 {
        return instruction.immediate64() == number.to_bits();
    }
    let is_fixed = instruction.memory_index() == Register::None
        && matches!(instruction.memory_base(), Register::None | Register::RIP);
    if instruction.op_count() == 0 || instruction.op_kind(source) != OpKind::Memory || !is_fixed {
        return false;
    }
    let address = FileAddress::new(instruction.memory_displacement64());
    let size = instruction.memory_size().size();
    let bytes = image.bytes_at(address).and_then(|bytes| bytes.get(..size));
    let bytes = bytes.filter(|_| !image.is_writable(address));
    let number = number.to_bits().to_le_bytes();
    bytes.is_some_and(|bytes| bytes.chunks(8).any(|own| own == number))
}
