//! Which registers a function takes arguments in.
//!
//! A register that a function reads before it writes it is an argument; one that it never reads is
//! not, whatever a caller left in it. That tells an address that is handed out from one that merely
//! still lies about.

use std::collections::HashMap;

use iced_x86::{FlowControl, InstructionInfoFactory, OpAccess};

use super::code::FunctionCode;
use super::execute::{general_register, writes};
use super::image::Image;

/// How deep calls are followed that pass an argument on; below that everything counts as read.
const MAX_DEPTH: u32 = 3;

/// The registers that a function reads before it writes them: bit i for x86-64 number i.
pub type Registers = u16;

/// For each function that `code` calls directly, the registers that it takes arguments in.
pub fn of_callees(image: &Image<'_>, code: &FunctionCode) -> HashMap<u64, Registers> {
    code.blocks
        .iter()
        .flat_map(|block| &block.instructions)
        .filter(|instruction| instruction.flow_control() == FlowControl::Call)
        .map(|call| call.near_branch_target())
        .map(|callee| (callee, read_by(image, callee, MAX_DEPTH)))
        .collect()
}

fn read_by(image: &Image<'_>, function: u64, depth: u32) -> Registers {
    let Some(depth) = depth.checked_sub(1) else {
        return Registers::MAX;
    };
    let Ok(code) = FunctionCode::decode(image, function) else {
        return Registers::MAX;
    };
    let mut info = InstructionInfoFactory::new();
    let mut read = 0;
    // Registers written on every way to a block so far; a block is visited again with fewer.
    let mut written: HashMap<usize, Registers> = HashMap::new();
    let mut pending = vec![(0, 0)];
    while let Some((index, mut gone)) = pending.pop() {
        match written.get_mut(&index) {
            // At least as much was written on the ways seen before: nothing new can be read.
            Some(seen) if *seen & gone == *seen => continue,
            Some(seen) => {
                *seen &= gone;
                gone = *seen;
            }
            None => {
                written.insert(index, gone);
            }
        }
        let Some(block) = code.blocks.get(index) else {
            continue;
        };
        for instruction in &block.instructions {
            let passed_on = match instruction.flow_control() {
                FlowControl::Call => read_by(image, instruction.near_branch_target(), depth),
                FlowControl::IndirectCall => Registers::MAX,
                _ => 0,
            };
            read |= passed_on & !gone;
            for used in info.info(instruction).used_registers() {
                let Some(number) = general_register(used.register()) else {
                    continue;
                };
                let reads = !matches!(used.access(), OpAccess::Write | OpAccess::NoMemAccess);
                if reads && gone & (1 << number) == 0 {
                    read |= 1 << number;
                }
                if used.access() == OpAccess::Write && writes(used.access()) {
                    gone |= 1 << number;
                }
            }
        }
        if block.leaves && block.successors.is_empty() && tail_calls(block) {
            return Registers::MAX;
        }
        pending.extend(
            block
                .successors
                .iter()
                .map(|(successor, _)| (*successor, gone)),
        );
    }
    read
}

fn tail_calls(block: &super::code::Block) -> bool {
    block
        .instructions
        .last()
        .is_some_and(|last| last.flow_control() != FlowControl::Return)
}
