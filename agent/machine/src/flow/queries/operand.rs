//! What can be read at a probe site: registers, stack slots, globals.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;

use crate::flow::state::State;
use crate::flow::values::atoms::Atoms;
use crate::isa::Register;

/// A value in reach at a site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register plus a constant.
    Register {
        /// Which.
        register: Register,
        /// 4 (zero-extended) or 8 bytes.
        width: u8,
        /// What is added.
        plus: i64,
    },
    /// Memory at a register plus a displacement.
    Memory {
        /// The register.
        base: Register,
        /// Displacement in bytes.
        displacement: i64,
        /// 4 (zero-extended) or 8 bytes.
        width: u8,
    },
    /// Always the same.
    Constant(i64),
    /// A global variable, 8 bytes.
    Global {
        /// Virtual address, as in the ELF file.
        address: FileAddress,
        /// Its name, for people.
        name: String,
    },
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register { register, width, plus } => {
                f.write_str(register.name(*width))?;
                if *plus == 0 { Ok(()) } else { write!(f, "{plus:+}") }
            }
            Self::Memory { base, displacement, .. } => {
                let sign = if *displacement < 0 { '-' } else { '+' };
                write!(f, "[{}{sign}{:#x}]", base.name(8), displacement.unsigned_abs())
            }
            Self::Constant(value) => write!(f, "{value}"),
            Self::Global { name, .. } => f.write_str(name),
        }
    }
}

/// A register by which stack slots are found.
#[derive(Clone, Copy, Debug)]
pub struct SlotBase {
    base: Register,
    /// Where it points, as an offset from the stack pointer at entry.
    at: i64,
    /// The lowest slot that is certain to last.
    lowest: i64,
}

impl SlotBase {
    /// Returns the stack pointer, or the frame pointer if an array of any length is below the slots.
    pub fn of(state: &State, atoms: &mut Atoms) -> Option<Self> {
        let (architecture, convention) = (atoms.architecture, atoms.convention());
        let [stack, frame] =
            [convention.stack_pointer, convention.frame_pointer].map(|number| Register { architecture, number });
        let mut known = |base: Register| atoms.stack_offset(&state.registers[base.index()]);
        let (base, at) = if let Some(at) = known(stack) { (stack, at) } else { (frame, known(frame)?) };
        let lowest = if base == stack { at } else { i64::MIN };
        Some(Self { base, at, lowest })
    }

    /// Returns the operand that reads the slot at an offset from the stack pointer at entry.
    pub fn slot(self, offset: i64, width: u8) -> Option<Operand> {
        let operand = Operand::Memory { base: self.base, displacement: offset.wrapping_sub(self.at), width };
        (offset >= self.lowest).then_some(operand)
    }
}
