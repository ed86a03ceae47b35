//! How a probe finds stack slots.

use super::atoms::Atoms;
use super::operand::Operand;
use super::state::State;
use crate::code::registers::{RBP, RSP};

/// A register by which stack slots are found.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    base: usize,
    /// Where it points, as an offset from the stack pointer at entry.
    at: i64,
    /// The lowest slot that is certain to last.
    lowest: i64,
}

impl Frame {
    /// Returns the stack pointer, or the frame pointer if an array of any length is below the slots.
    pub fn of(state: &State, atoms: &mut Atoms) -> Option<Self> {
        let mut known = |base: usize| atoms.stack_offset(&state.registers[base]);
        let (base, at) = match known(RSP) {
            Some(at) => (RSP, at),
            None => (RBP, known(RBP)?),
        };
        let lowest = if base == RSP { at } else { i64::MIN };
        Some(Self { base, at, lowest })
    }

    /// Returns the operand that reads the slot at an offset from the stack pointer at entry.
    pub fn slot(self, offset: i64, width: u8) -> Option<Operand> {
        let operand = Operand::Memory {
            base: self.base as u8,
            displacement: offset.wrapping_sub(self.at),
            width,
        };
        (offset >= self.lowest).then_some(operand)
    }
}
