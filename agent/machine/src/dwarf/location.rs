//! Where a variable is according to DWARF expressions: sums of registers and what they point to.
//!
//! Compilers also write expressions that are not sums (a variable in two pieces, one that was never
//! stored, arithmetic other than addition). Here such a variable has no location.

use gimli::{Encoding, EndianSlice, Expression, Operation, Range, Register};

use super::sections::Reader;
use crate::code::registers::{RSP, register_name};

/// The most operations of one expression.
const MAX_OPERATIONS: usize = 64;
/// The most entries on the stack of one expression.
const MAX_STACK: usize = 16;
/// How deep expressions may be nested.
const MAX_DEPTH: u32 = 4;

/// Something that a sum is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register, by its x86-64 number, at the place itself.
    Register(u8),
    /// A register at the function's entry.
    AtEntry(u8),
    /// The 8 bytes at an address.
    Loaded(Box<Sum>),
}

/// `constant + Σ coefficient · base`, modulo 2^64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The constant.
    pub constant: u64,
    /// The bases with their coefficients.
    pub terms: Vec<(Base, u64)>,
}

impl Sum {
    fn constant(constant: u64) -> Self {
        Self {
            constant,
            terms: Vec::new(),
        }
    }

    fn of(base: Base, constant: u64) -> Self {
        Self {
            constant,
            terms: vec![(base, 1)],
        }
    }

    fn plus(mut self, other: Self, factor: u64) -> Self {
        self.constant = self
            .constant
            .wrapping_add(other.constant.wrapping_mul(factor));
        let added = other.terms.into_iter();
        self.terms
            .extend(added.map(|(base, coefficient)| (base, coefficient.wrapping_mul(factor))));
        self
    }
}

/// Where a variable's value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// It is this sum.
    Value(Sum),
    /// It is in memory, at this address.
    Memory(Sum),
}

/// A location, and the addresses of the instructions before which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedAt {
    /// The addresses.
    pub range: Range,
    /// The location.
    pub location: Location,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(sum) => write!(f, "{sum}"),
            Self::Memory(address) => write!(f, "[{address}]"),
        }
    }
}

impl std::fmt::Display for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (base, coefficient)) in self.terms.iter().enumerate() {
            match (coefficient.cast_signed(), index) {
                (1, 0) => {}
                (1, _) => f.write_str(" + ")?,
                (-1, _) => f.write_str(" - ")?,
                (factor, _) => write!(f, " {factor:+} * ")?,
            }
            match base {
                Base::Register(number) => f.write_str(register_name(*number, 8))?,
                Base::AtEntry(number) => write!(f, "{} at entry", register_name(*number, 8))?,
                Base::Loaded(address) => write!(f, "[{address}]")?,
            }
        }
        match (self.constant.cast_signed(), self.terms.is_empty()) {
            (0, false) => Ok(()),
            (constant, true) => write!(f, "{constant}"),
            (constant, false) => write!(f, " {constant:+}"),
        }
    }
}

/// Returns what an expression means in a function whose frame base is `frame`.
pub fn parse(
    expression: Expression<Reader<'_>>,
    encoding: Encoding,
    frame: Option<&Sum>,
) -> Option<Location> {
    evaluate(expression, encoding, frame, MAX_DEPTH)
}

/// Returns the frame base that a function's `DW_AT_frame_base` gives: a register means its content.
pub fn frame_base(expression: Expression<Reader<'_>>, encoding: Encoding) -> Option<Sum> {
    let (Location::Value(sum) | Location::Memory(sum)) = parse(expression, encoding, None)?;
    Some(sum)
}

fn evaluate(
    expression: Expression<Reader<'_>>,
    encoding: Encoding,
    frame: Option<&Sum>,
    depth: u32,
) -> Option<Location> {
    let depth = depth.checked_sub(1)?;
    let mut bytes: EndianSlice<'_, _> = expression.0;
    let mut stack: Vec<Sum> = Vec::new();
    let mut in_register = false;
    let mut is_value = false;
    for _ in 0..MAX_OPERATIONS {
        if bytes.is_empty() {
            break;
        }
        // Nothing may follow what ends an expression.
        if in_register || is_value || stack.len() >= MAX_STACK {
            return None;
        }
        match Operation::parse(&mut bytes, encoding).ok()? {
            Operation::Register { register } => {
                stack.push(Sum::of(Base::Register(x86_number(register)?), 0));
                in_register = true;
            }
            Operation::RegisterOffset {
                register,
                offset,
                base_type,
            } if base_type.0 == 0 => {
                let base = Base::Register(x86_number(register)?);
                stack.push(Sum::of(base, offset.cast_unsigned()));
            }
            Operation::FrameOffset { offset } => {
                stack.push(
                    frame?
                        .clone()
                        .plus(Sum::constant(offset.cast_unsigned()), 1),
                );
            }
            // The stack pointer before the call, which pushed 8 bytes.
            Operation::CallFrameCFA => stack.push(Sum::of(Base::AtEntry(RSP as u8), 8)),
            Operation::EntryValue { expression } => {
                let inner = evaluate(Expression(expression), encoding, None, depth)?;
                stack.push(at_entry(inner)?);
            }
            Operation::Address { address } => stack.push(Sum::constant(address)),
            Operation::UnsignedConstant { value } => stack.push(Sum::constant(value)),
            Operation::SignedConstant { value } => {
                stack.push(Sum::constant(value.cast_unsigned()));
            }
            Operation::PlusConstant { value } => {
                let top = stack.pop()?;
                stack.push(top.plus(Sum::constant(value), 1));
            }
            Operation::Plus => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(left.plus(right, 1));
            }
            Operation::Minus => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(left.plus(right, u64::MAX));
            }
            Operation::Deref {
                size: 8,
                space: false,
                ..
            } => {
                let address = stack.pop()?;
                stack.push(Sum::of(Base::Loaded(Box::new(address)), 0));
            }
            Operation::StackValue => is_value = true,
            Operation::Nop => {}
            _ => return None,
        }
    }
    if !bytes.is_empty() || stack.len() != 1 {
        return None;
    }
    let sum = stack.pop()?;
    Some(match in_register || is_value {
        true => Location::Value(sum),
        false => Location::Memory(sum),
    })
}

/// Returns the register that an expression reads at the function's entry. Compilers use no other
/// expressions there.
fn at_entry(inner: Location) -> Option<Sum> {
    let Location::Value(sum) = inner else {
        return None;
    };
    let [(Base::Register(number), 1)] = sum.terms[..] else {
        return None;
    };
    (sum.constant == 0).then(|| Sum::of(Base::AtEntry(number), 0))
}

/// Returns the number that instructions use for a DWARF register.
fn x86_number(register: Register) -> Option<u8> {
    const BY_DWARF_NUMBER: [u8; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
    match register.0 {
        low @ 0..8 => BY_DWARF_NUMBER.get(usize::from(low)).copied(),
        high @ 8..16 => u8::try_from(high).ok(),
        _ => None,
    }
}
