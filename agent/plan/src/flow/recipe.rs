//! Recipes: how a value is computed from what is in reach at one instruction.

use serde::Serialize;

/// A sum of operands, modulo 2^64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// One to three summands.
    pub terms: Vec<Term>,
}

/// One summand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Whether it is subtracted.
    pub negative: bool,
    /// What is read.
    pub operand: Operand,
}

/// A value in reach at a site.
#[derive(Clone, Debug, PartialEq, Eq)]
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
        address: u64,
        /// Its name, such as `server.maxmemory`.
        name: String,
    },
}

const NAMES_8: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
const NAMES_4: [&str; 16] = [
    "eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d",
    "r13d", "r14d", "r15d",
];

/// Returns the name of a register of 8 bytes, by its x86-64 number.
pub fn register_name(number: u8) -> &'static str {
    NAMES_8.get(usize::from(number)).copied().unwrap_or("?")
}

impl std::fmt::Display for Operand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = |number: u8, width: u8| match width {
            4 => NAMES_4.get(usize::from(number)).copied().unwrap_or("?"),
            _ => register_name(number),
        };
        match self {
            Self::Register {
                number,
                width,
                plus,
            } => {
                f.write_str(name(*number, *width))?;
                match plus {
                    0 => Ok(()),
                    plus => write!(f, "{plus:+}"),
                }
            }
            Self::Memory {
                base, displacement, ..
            } => {
                let sign = if *displacement < 0 { '-' } else { '+' };
                write!(
                    f,
                    "[{}{sign}{:#x}]",
                    name(*base, 8),
                    displacement.unsigned_abs()
                )
            }
            Self::Constant(value) => write!(f, "{value}"),
            Self::Global { name, .. } => f.write_str(name),
        }
    }
}

impl std::fmt::Display for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            match (index, term.negative) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            write!(f, "{}", term.operand)?;
        }
        Ok(())
    }
}

impl Serialize for Recipe {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Operand {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
