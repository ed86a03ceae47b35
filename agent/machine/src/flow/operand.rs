//! What a recipe adds up.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;

use crate::code::registers::register_name;

/// A value in reach at a site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register plus a constant.
    Register {
        /// x86-64 number (rax 0, rcx 1, rdx 2, rbx 3, rsp 4, …).
        number: u8,
        /// 4 (zero-extended) or 8 bytes.
        width: u8,
        /// What is added.
        plus: i64,
    },
    /// Memory at a register plus a displacement.
    Memory {
        /// x86-64 number of the base register.
        base: u8,
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
            Self::Register { number, width, plus } => {
                f.write_str(register_name(*number, *width))?;
                match plus {
                    0 => Ok(()),
                    plus => write!(f, "{plus:+}"),
                }
            }
            Self::Memory { base, displacement, .. } => {
                let sign = if *displacement < 0 { '-' } else { '+' };
                write!(f, "[{}{sign}{:#x}]", register_name(*base, 8), displacement.unsigned_abs())
            }
            Self::Constant(value) => write!(f, "{value}"),
            Self::Global { name, .. } => f.write_str(name),
        }
    }
}
