//! Atoms: what values consist of.

use evictscope_model::FileAddress;

use super::condition::Condition;
use super::value::Value;

/// What a value can consist of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// A register at the function's entry, by its x86-64 number.
    Entry(u8),
    /// The result of whatever happens at an address.
    Opaque {
        /// Address of the instruction or block.
        address: FileAddress,
        /// Distinguishes what one address makes.
        index: u32,
    },
    /// A load of a global variable.
    Global {
        /// Its address.
        address: FileAddress,
        /// Bytes.
        width: u8,
        /// Where memory may last have changed; loads of different generations may differ.
        generation: FileAddress,
    },
    /// What a call returned.
    Call {
        /// Address of the call.
        site: FileAddress,
        /// The function that it calls, if known.
        callee: Option<FileAddress>,
    },
    /// The low `bits` bits of a value, zero-extended.
    ZeroExtended {
        /// 8, 16 or 32.
        bits: u8,
        /// The value.
        of: Value,
    },
    /// The low `bits` bits of a value, sign-extended.
    SignExtended {
        /// 8, 16 or 32.
        bits: u8,
        /// The value.
        of: Value,
    },
    /// One of two values, by a condition.
    Select {
        /// What decides.
        condition: Condition,
        /// What it is if that holds.
        then: Value,
        /// What it is otherwise.
        otherwise: Value,
    },
    /// 1 if it holds, else 0.
    Truth(Truth),
    /// A register of which only the low byte was written.
    LowByte {
        /// What was written.
        byte: Value,
        /// What the register held.
        rest: Value,
    },
    /// The result of an operation on values, about which nothing else is known.
    Computed {
        /// Which.
        operation: Operation,
        /// Its operands.
        of: Vec<Value>,
    },
    /// One of a few values, by the path taken to a block.
    Merged {
        /// Address of the block.
        address: FileAddress,
        /// What it is on each path there, always in the same order.
        options: Vec<Value>,
    },
}

/// An operation on 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Makes a number of type `double` from a signed integer.
    Double,
    /// Multiplies numbers of type `double`.
    Product,
    /// Multiplies two of them, and adds a third.
    ProductAndSum,
    /// Divides numbers of type `double`.
    Quotient,
    /// Divides signed numbers, and rounds towards 0.
    Whole,
    /// Multiplies signed numbers, and takes the upper half of the product.
    UpperHalf,
    /// Shifts a number to the right.
    Shifted {
        /// By how many bits.
        by: u32,
        /// Whether the sign is shifted in, and not 0.
        is_signed: bool,
    },
}

/// Whether one of several conditions holds, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Whether all must hold.
    pub all: bool,
    /// At least one. For a single one `all` means nothing, and is `false`.
    pub conditions: Vec<Condition>,
}

impl Atom {
    /// Estimates the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let inside = match self {
            Self::Merged { options: of, .. } | Self::Computed { of, .. } => of.iter().map(Value::bytes).sum(),
            Self::ZeroExtended { of, .. } | Self::SignExtended { of, .. } => of.bytes(),
            Self::LowByte { byte, rest } => byte.bytes() + rest.bytes(),
            Self::Truth(truth) => {
                (truth.conditions.iter()).map(|own| size_of::<Condition>() + own.left.bytes() + own.right.bytes()).sum()
            }
            Self::Select { condition, then, otherwise } => {
                [&condition.left, &condition.right, then, otherwise].map(Value::bytes).iter().sum()
            }
            Self::Entry(_) | Self::Opaque { .. } | Self::Global { .. } | Self::Call { .. } => 0,
        };
        size_of::<Self>() + inside
    }
}
