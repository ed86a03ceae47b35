//! Operands: the fields of a word, registers, addresses and conditions.

use fARM64::{Condition, Instruction as Decoded, RegClass, Register};

use super::tables::SP;
use crate::ir::{Address, Effect, Expression, Operation, Relation};

/// An instruction, and those of its effects that are known.
pub struct Lifter<'a> {
    pub decoded: &'a Decoded,
    pub word: u32,
    pub effects: Vec<Effect>,
}

/// Where fields of a word begin that hold numbers of registers: those of the result, and of the operands.
pub const RD: u32 = 0;
pub const RN: u32 = 5;
pub const RA: u32 = 10;
pub const RM: u32 = 16;

impl Lifter<'_> {
    pub fn field(&self, at: u32) -> u8 {
        (self.word >> at & 31) as u8
    }

    pub fn number(&self, at: u32, bits: u32) -> u64 {
        u64::from(self.word >> at & ((1 << bits) - 1))
    }

    /// Returns how many bytes it works on.
    pub fn width(&self) -> u8 {
        if self.word >> 31 == 1 { 8 } else { 4 }
    }

    pub fn bits(&self) -> u8 {
        8 * self.width()
    }

    /// Returns the register in a field, of which this number of bytes count.
    pub fn part(&self, at: u32, width: u8) -> Expression {
        match self.field(at) {
            SP => Expression::Constant(0),
            number => Expression::Register { number, width },
        }
    }

    /// Sets the register of the result. To set the one that is always zero has no effect.
    pub fn set(&mut self, width: u8, value: Expression) {
        if self.field(RD) != SP {
            self.effects.push(Effect::Set { register: self.field(RD), width, value });
        }
    }
}

/// Returns the sum or difference of two numbers.
pub fn sum(is_difference: bool, left: Expression, right: Expression) -> Expression {
    let zero = Expression::Constant(0);
    match is_difference {
        _ if right == zero => left,
        false if left == zero => right,
        true => Expression::of_two(Operation::Subtract, left, right),
        false => Expression::of_two(Operation::Add, left, right),
    }
}

/// Returns how the two sides of a comparison compare if a condition holds.
pub fn relation(condition: Condition) -> Relation {
    match condition {
        Condition::Eq => Relation::Equal,
        Condition::Ne => Relation::NotEqual,
        Condition::Cs => Relation::AboveOrEqual,
        Condition::Cc => Relation::Below,
        Condition::Mi => Relation::Negative,
        Condition::Pl => Relation::NotNegative,
        Condition::Hi => Relation::Above,
        Condition::Ls => Relation::BelowOrEqual,
        Condition::Ge => Relation::GreaterOrEqual,
        Condition::Lt => Relation::Less,
        Condition::Gt => Relation::Greater,
        Condition::Le => Relation::LessOrEqual,
        // Overflow, and what always holds.
        Condition::Vs | Condition::Vc | Condition::Al | Condition::Nv => Relation::Other(condition.as_u4()),
    }
}

/// Returns the number of a general register, given the whole register or its lower half; `None` if it is another, or
/// the one that is always zero.
pub fn general(register: Register) -> Option<u8> {
    let is_zero = matches!(register, Register::Xzr | Register::Wzr);
    (register.class() == RegClass::Gp && !is_zero).then(|| register.number())
}

pub fn whole(number: u8) -> Expression {
    Expression::Register { number, width: 8 }
}

/// Returns an address somewhere near one in a register.
pub fn somewhere(base: Option<u8>) -> Address {
    Address { base, is_elsewhere: true, ..Address::default() }
}

/// Returns an address in the file.
pub fn global(at: u64) -> Expression {
    Expression::Address(Address { displacement: at, ..Address::default() })
}
