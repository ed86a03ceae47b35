//! Pieces of code that the linker puts between a call and a function that is too far away, or in a shared library.
//!
//! Each computes an address in `x16` or `x17`, and jumps there.

use evictscope_model::FileAddress;

use super::references::Pages;
use crate::elf::image::Image;
use crate::ir::{Effect, Expression, Flow, Instruction};

/// The most instructions of one: a landing pad, two for the address, one that also keeps the address of the slot, the
/// jump.
const LENGTH: usize = 5;
/// The registers that it may change.
const SCRATCH: [u8; 2] = [16, 17];

/// Returns how control goes on after an instruction that goes through a veneer; `None` if it does not.
pub fn flow_behind(image: &Image<'_>, instruction: &Instruction) -> Option<Flow> {
    let (is_call, target) = match instruction.flow {
        Flow::Call(target) => (true, target),
        Flow::Jump(target) => (false, target),
        _ => return None,
    };
    let Some(Through::Code(to)) = through(image, target) else { return None };
    Some(if is_call { Flow::Call(to) } else { Flow::Jump(to) })
}

/// Returns the slot that the code at an address jumps through.
pub fn slot_of_stub(image: &Image<'_>, address: FileAddress) -> Option<FileAddress> {
    if let Some(Through::Slot(slot)) = through(image, address) { Some(slot) } else { None }
}

enum Through {
    Code(FileAddress),
    Slot(FileAddress),
}

fn through(image: &Image<'_>, address: FileAddress) -> Option<Through> {
    let mut pages = Pages::default();
    // What each of the two registers holds.
    let mut held: [Option<Through>; 2] = [None, None];
    for instruction in image.instructions_at(address).take(LENGTH) {
        if let Flow::IndirectJump(to) = &instruction.flow {
            let Expression::Register { number, .. } = **to else { return None };
            let [first, second] = held;
            return if number == SCRATCH[0] { first } else { second.filter(|_| number == SCRATCH[1]) };
        }
        let mentioned = pages.mentioned(&instruction);
        match instruction.effects() {
            [] if instruction.flow == Flow::Next => {}
            [Effect::Set { register, width: 8, value }] => {
                let place = SCRATCH.iter().position(|scratch| scratch == register)?;
                held[place] = mentioned.map(|at| match value {
                    Expression::Load { .. } => Through::Slot(at),
                    _ => Through::Code(at),
                });
            }
            _ => return None,
        }
    }
    None
}
