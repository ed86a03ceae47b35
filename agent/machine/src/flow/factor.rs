//! Multiplications of numbers of type `double` by a constant.

use iced_x86::{Instruction, Mnemonic};

use super::atom::Operation;
use super::atoms::Atoms;
use super::execution::Execution;
use super::state::State;
use super::value::Value;
use crate::code::graph::{Block, BlockId, FunctionCode};
use crate::elf::image::Image;

/// Returns the blocks in which something is multiplied by `factor`.
pub fn blocks(image: &Image<'_>, code: &FunctionCode, factor: f64) -> Vec<BlockId> {
    let multiplies = |(_, block): &(_, &Block)| block.instructions.iter().any(is_product);
    let mut blocks: Vec<_> = code.blocks.entries().filter(multiplies).collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    let mut execution = Execution::new(code, Atoms::new(code.budget.clone()), None);
    let entry = State::at_entry(&mut execution.atoms);
    blocks.retain(|(_, block)| {
        let mut state = entry.clone();
        block.instructions.iter().any(|instruction| {
            execution.step(&mut state, instruction);
            !multiplied(image, &execution.atoms, &state, instruction, factor).is_empty()
        })
    });
    blocks.into_iter().map(|(id, _)| id).collect()
}

/// Returns what an instruction has multiplied by `factor`; `state` holds after it.
pub fn multiplied(
    image: &Image<'_>,
    atoms: &Atoms,
    state: &State,
    instruction: &Instruction,
    factor: f64,
) -> Vec<Value> {
    if !is_product(instruction) {
        return Vec::new();
    }
    let to = instruction.op0_register().full_register().number();
    let multiplied = |lane| {
        let product = state.lanes.get(&(to, lane))?;
        let alone = atoms.computed::<2>(product, Operation::Product);
        let and_sum = || atoms.computed::<3>(product, Operation::ProductAndSum);
        let factors = alone.map(|own| own.as_slice()).or_else(|| Some(and_sum()?.as_slice()));
        let [left, right, ..] = factors? else {
            return None;
        };
        let is_factor = [left, right].map(|own| is_number(image, atoms, own, factor));
        match is_factor {
            [true, _] => Some(right.clone()),
            [_, true] => Some(left.clone()),
            _ => None,
        }
    };
    (0..2).filter_map(multiplied).collect()
}

/// Returns whether an instruction multiplies numbers of type `double`.
pub fn is_product(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Mulsd
            | Mnemonic::Mulpd
            | Mnemonic::Vmulsd
            | Mnemonic::Vmulpd
            | Mnemonic::Vfmadd132sd
            | Mnemonic::Vfmadd213sd
            | Mnemonic::Vfmadd231sd
    )
}

/// Returns whether a value is a number of type `double`: itself, or a constant in the file.
fn is_number(image: &Image<'_>, atoms: &Atoms, value: &Value, number: f64) -> bool {
    let constant = || {
        let address = atoms.as_global(value)?;
        let bytes = image.bytes_at(address).filter(|_| !image.is_writable(address));
        Some(u64::from_le_bytes(*bytes?.first_chunk()?))
    };
    value.as_constant().or_else(constant) == Some(number.to_bits())
}
