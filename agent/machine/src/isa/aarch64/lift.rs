//! The effects of one instruction.
//!
//! fARM64 says which encoding a word has. Its operands are those of the preferred alias, of which there are many more
//! than encodings, so the fields of the word are taken here as the encoding has them.
//!
//! What is not followed by name is clobbered: whatever fARM64 says that the instruction writes.

use fARM64::{Code, Condition, Mnemonic, OpAccess, Operand, instruction_info};

use super::decode::decoded;
use super::operands::{Lifter, RA, RD, RM, RN, general, global, relation, somewhere, sum};
use super::tables::SP;
use super::{memory, vector};
use crate::ir::{Clobber, Effect, Expression, Flow, Instruction, Operation, Test, bit};

/// Returns the effects of an instruction.
pub fn lift(instruction: &Instruction) -> Vec<Effect> {
    // What a branch depends on is in its flow.
    if matches!(instruction.flow, Flow::Jump(_) | Flow::Branch(..)) {
        return Vec::new();
    }
    let decoded = decoded(instruction);
    let mut lifter = Lifter { decoded: &decoded, word: decoded.word(), effects: Vec::new() };
    let is_followed = match lifter.word >> 25 & 15 {
        0b1000 | 0b1001 => lifter.with_number(),
        0b0101 | 0b1101 => lifter.with_registers(),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory::lift(&mut lifter),
        0b0111 | 0b1111 => vector::lift(&mut lifter),
        _ => false,
    };
    if !is_followed {
        lifter.unfollowed();
    }
    lifter.effects
}

/// What a result is called until it is written.
const RESULT: u8 = 0;

impl Lifter<'_> {
    fn register(&self, at: u32) -> Expression {
        self.part(at, self.width())
    }

    /// Returns the same, in an operand in which the last register is the stack pointer.
    fn register_or_sp(&self, at: u32) -> Expression {
        Expression::Register { number: self.field(at), width: self.width() }
    }

    fn write(&mut self, value: Expression) -> bool {
        self.set(self.width(), value);
        true
    }

    /// Lifts what computes with a number in the instruction. Returns `false` if it is not followed.
    fn with_number(&mut self) -> bool {
        let bits = self.bits();
        match self.decoded.code().mnemonic() {
            Mnemonic::Adr | Mnemonic::Adrp => match self.decoded.op(1) {
                Operand::Label(to) => {
                    self.set(8, global(to));
                    true
                }
                _ => false,
            },
            mnemonic @ (Mnemonic::Add | Mnemonic::Adds | Mnemonic::Sub | Mnemonic::Subs) => {
                let number = self.number(10, 12) << (12 * self.number(22, 1));
                let left = self.register_or_sp(RN);
                match mnemonic {
                    Mnemonic::Add | Mnemonic::Sub => {
                        let value = sum(mnemonic == Mnemonic::Sub, left, Expression::Constant(number));
                        self.effects.push(Effect::Set { register: self.field(RD), width: self.width(), value });
                        true
                    }
                    // The sum with a number other than 0 leaves the flags of the difference from the opposite.
                    Mnemonic::Adds if number != 0 => self.difference(left, Expression::Constant(number.wrapping_neg())),
                    Mnemonic::Adds => self.sum(left, Expression::Constant(0)),
                    _ => self.difference(left, Expression::Constant(number)),
                }
            }
            mnemonic @ (Mnemonic::And | Mnemonic::Orr | Mnemonic::Eor | Mnemonic::Ands) => {
                let number = match self.decoded.op(self.decoded.op_count().saturating_sub(1)) {
                    Operand::ImmLogical(number) => number,
                    Operand::ImmSigned(number) => number.cast_unsigned(),
                    _ => return false,
                };
                let number = if bits == 64 { number } else { number & u64::from(u32::MAX) };
                let value = logic(mnemonic, self.register(RN), Expression::Constant(number));
                if mnemonic == Mnemonic::Ands {
                    return self.with_flags(value);
                }
                // The result can be the stack pointer.
                self.effects.push(Effect::Set { register: self.field(RD), width: self.width(), value });
                true
            }
            mnemonic @ (Mnemonic::Movz | Mnemonic::Movn | Mnemonic::Movk) => {
                let at = 16 * self.number(21, 2);
                let number = self.number(5, 16) << at;
                let value = match mnemonic {
                    Mnemonic::Movz => Expression::Constant(number),
                    Mnemonic::Movn if bits == 64 => Expression::Constant(!number),
                    Mnemonic::Movn => Expression::Constant(!number & u64::from(u32::MAX)),
                    _ => {
                        let kept = logic(Mnemonic::And, self.register(RD), Expression::Constant(!(0xffff << at)));
                        logic(Mnemonic::Orr, kept, Expression::Constant(number))
                    }
                };
                self.write(value)
            }
            mnemonic @ (Mnemonic::Sbfm | Mnemonic::Bfm | Mnemonic::Ubfm) => self.bit_field(mnemonic),
            Mnemonic::Extr => {
                let value = match (self.number(10, 6), u64::from(bits)) {
                    (0, _) => self.register(RM),
                    (by, bits) => {
                        let upper = shifted(Operation::ShiftLeft, self.bits(), self.register(RN), bits - by);
                        let lower = shifted(Operation::ShiftRight, self.bits(), self.register(RM), by);
                        logic(Mnemonic::Orr, upper, lower)
                    }
                };
                self.write(value)
            }
            _ => false,
        }
    }

    /// Lifts a move of some bits of a register to others of the result.
    fn bit_field(&mut self, mnemonic: Mnemonic) -> bool {
        let bits = u64::from(self.bits());
        let (first, last) = (self.number(16, 6), self.number(10, 6));
        // How many bits are moved, from where to where.
        let (count, from, to) = if last >= first { (last - first + 1, first, 0) } else { (last + 1, 0, bits - first) };
        let moved = shifted(Operation::ShiftRight, self.bits(), self.register(RN), from);
        let value = match mnemonic {
            Mnemonic::Ubfm if from + count == bits => moved,
            Mnemonic::Ubfm if to + count == bits => self.register(RN),
            Mnemonic::Ubfm => low(count, moved),
            Mnemonic::Sbfm if from + count == bits => {
                shifted(Operation::ShiftRightSigned, self.bits(), self.register(RN), from)
            }
            Mnemonic::Sbfm => Expression::of_one(Operation::SignExtend(count as u8), moved),
            _ => {
                let mask = (u64::MAX >> (64 - count)) << to;
                let new = shifted(Operation::ShiftLeft, self.bits(), low(count, moved), to);
                let kept = logic(Mnemonic::And, self.register(RD), Expression::Constant(!mask));
                return self.write(logic(Mnemonic::Orr, kept, new));
            }
        };
        self.write(shifted(Operation::ShiftLeft, self.bits(), value, to))
    }

    /// Lifts what computes with registers only. Returns `false` if it is not followed.
    fn with_registers(&mut self) -> bool {
        let (bits, width) = (self.bits(), self.width());
        let half = |lifter: &Self, at, is_signed| {
            let half = lifter.part(at, 4);
            if is_signed { Expression::of_one(Operation::SignExtend(32), half) } else { half }
        };
        match self.decoded.code().mnemonic() {
            mnemonic @ (Mnemonic::Add | Mnemonic::Adds | Mnemonic::Sub | Mnemonic::Subs) => {
                let is_extended = self.number(21, 1) == 1;
                let (left, right) = match is_extended {
                    true => (self.register_or_sp(RN), self.extended()),
                    false => (self.register(RN), self.shifted()),
                };
                match mnemonic {
                    Mnemonic::Adds => self.sum(left, right),
                    Mnemonic::Subs => self.difference(left, right),
                    _ => {
                        let value = sum(mnemonic == Mnemonic::Sub, left, right);
                        if is_extended || self.field(RD) != SP {
                            self.effects.push(Effect::Set { register: self.field(RD), width, value });
                        }
                        true
                    }
                }
            }
            mnemonic @ (Mnemonic::And
            | Mnemonic::Bic
            | Mnemonic::Orr
            | Mnemonic::Orn
            | Mnemonic::Eor
            | Mnemonic::Eon
            | Mnemonic::Ands
            | Mnemonic::Bics) => {
                let mut right = self.shifted();
                if self.number(21, 1) == 1 {
                    right = Expression::of_two(Operation::Xor, right, Expression::Constant(u64::MAX));
                }
                let value = logic(mnemonic, self.register(RN), right);
                if matches!(mnemonic, Mnemonic::Ands | Mnemonic::Bics) {
                    return self.with_flags(value);
                }
                self.write(value)
            }
            mnemonic @ (Mnemonic::Csel | Mnemonic::Csinc | Mnemonic::Csinv | Mnemonic::Csneg) => self.choice(mnemonic),
            mnemonic @ (Mnemonic::Ccmp | Mnemonic::Ccmn) => self.difference_if(mnemonic == Mnemonic::Ccmn),
            mnemonic @ (Mnemonic::Madd | Mnemonic::Msub) => {
                let product = Expression::of_two(Operation::Multiply, self.register(RN), self.register(RM));
                let value = sum(mnemonic == Mnemonic::Msub, self.register(RA), product);
                self.write(value)
            }
            mnemonic @ (Mnemonic::Smaddl | Mnemonic::Smsubl | Mnemonic::Umaddl | Mnemonic::Umsubl) => {
                let is_signed = matches!(mnemonic, Mnemonic::Smaddl | Mnemonic::Smsubl);
                let (left, right) = (half(self, RN, is_signed), half(self, RM, is_signed));
                let product = Expression::of_two(Operation::Multiply, left, right);
                let is_less = matches!(mnemonic, Mnemonic::Smsubl | Mnemonic::Umsubl);
                self.write(sum(is_less, self.register(RA), product))
            }
            Mnemonic::Smulh => {
                let value = Expression::of_two(Operation::UpperHalf, self.register(RN), self.register(RM));
                self.write(value)
            }
            Mnemonic::Sdiv if width == 8 => {
                let upper = shifted(Operation::ShiftRightSigned, bits, self.register(RN), 63);
                let of = Box::new([upper, self.register(RN), self.register(RM)]);
                self.write(Expression::Computed(Operation::Whole, of))
            }
            Mnemonic::Lslv => self.shift(Operation::ShiftLeft),
            Mnemonic::Lsrv => self.shift(Operation::ShiftRight),
            Mnemonic::Asrv => self.shift(Operation::ShiftRightSigned),
            _ => false,
        }
    }

    fn shift(&mut self, operation: fn(u8) -> Operation) -> bool {
        let value = Expression::of_two(operation(self.bits()), self.register(RN), self.register(RM));
        self.write(value)
    }

    /// Returns the second operand of arithmetic that can be shifted by a number.
    fn shifted(&self) -> Expression {
        let (bits, by, value) = (self.bits(), self.number(10, 6), self.register(RM));
        match self.number(22, 2) {
            0 => shifted(Operation::ShiftLeft, bits, value, by),
            1 => shifted(Operation::ShiftRight, bits, value, by),
            2 => shifted(Operation::ShiftRightSigned, bits, value, by),
            _ if by == 0 => value,
            _ => {
                let upper = shifted(Operation::ShiftLeft, bits, value.clone(), u64::from(bits) - by);
                logic(Mnemonic::Orr, upper, shifted(Operation::ShiftRight, bits, value, by))
            }
        }
    }

    /// Returns the second operand of arithmetic that can be a part of a register, extended and then shifted.
    fn extended(&self) -> Expression {
        let option = self.number(13, 3);
        let width = 1_u8 << (option & 3);
        let part = self.part(RM, width);
        let value = match option {
            4..=6 => Expression::of_one(Operation::SignExtend(8 * width), part),
            _ => part,
        };
        shifted(Operation::ShiftLeft, 64, value, self.number(10, 3))
    }

    /// Lifts a difference that leaves flags, perhaps nothing else.
    fn difference(&mut self, left: Expression, right: Expression) -> bool {
        self.effects.push(Effect::Compare { left: left.clone(), right: right.clone(), bits: self.bits() });
        self.write(sum(true, left, right))
    }

    /// Lifts a difference, or a sum, that leaves flags if a condition holds.
    fn difference_if(&mut self, is_sum: bool) -> bool {
        let right = match (self.number(11, 1) == 1, self.number(16, 5)) {
            (true, number) if !is_sum => Expression::Constant(number),
            // As above, the difference from the opposite.
            (true, number @ 1..) => Expression::Constant(number.wrapping_neg()),
            (false, _) if !is_sum => self.register(RM),
            _ => return false,
        };
        let Some(test) = test(Condition::from_bits(self.number(12, 4) as u8)) else { return false };
        let flags = self.number(0, 4);
        let conditions = (0..Condition::Al.as_u4()).filter(|condition| holds(*condition, flags));
        let otherwise = conditions.map(|condition| relation(Condition::from_bits(condition))).collect();
        let (left, bits) = (self.register(RN), self.bits());
        self.effects.push(Effect::CompareIf { test, left, right, bits, otherwise });
        true
    }

    /// Lifts a sum that leaves flags.
    fn sum(&mut self, left: Expression, right: Expression) -> bool {
        self.with_flags(sum(false, left, right))
    }

    /// Writes a result of which the flags say whether it is zero, and its sign. (After a sum, they also say what is not
    /// followed; after logic, the one for unsigned numbers is the opposite of what a comparison with 0 leaves.)
    fn with_flags(&mut self, value: Expression) -> bool {
        self.effects.push(Effect::Let { temporary: RESULT, value });
        self.effects.push(Effect::ZeroAndSign { of: Expression::Temporary(RESULT), bits: self.bits() });
        self.write(Expression::Temporary(RESULT))
    }

    /// Lifts a choice between a register and what is made of another.
    fn choice(&mut self, mnemonic: Mnemonic) -> bool {
        let condition = Condition::from_bits(self.number(12, 4) as u8);
        let Some(test) = test(condition) else { return false };
        let (one, all) = (Expression::Constant(1), Expression::Constant(u64::MAX));
        let (then, other) = (self.register(RN), self.register(RM));
        let zero = Expression::Constant(0);
        let is_zero = then == zero && other == zero;
        let truth = || Expression::Truth(Test::Compared(relation(condition.invert())));
        let value = match mnemonic {
            Mnemonic::Csinc if is_zero => truth(),
            Mnemonic::Csinv if is_zero => sum(true, zero, truth()),
            _ => {
                let otherwise = match mnemonic {
                    Mnemonic::Csinc => sum(false, other, one),
                    Mnemonic::Csinv => Expression::of_two(Operation::Xor, other, all),
                    Mnemonic::Csneg => sum(true, zero, other),
                    _ => other,
                };
                Expression::Select(test, Box::new([then, otherwise]))
            }
        };
        self.write(value)
    }

    fn unfollowed(&mut self) {
        if matches!(self.decoded.code(), Code::PrfmImmUnsigned | Code::PrfmReg | Code::PrfmLit | Code::Prfum) {
            return;
        }
        let info = instruction_info(self.decoded);
        for used in info.used_memory() {
            let address = memory::address(self.decoded, used);
            // Vectors that have no fixed size, and blocks of memory, have no limit.
            let bytes = (self.word >> 25 & 15 >= 4 && self.word >> 24 & 0x3f != 0x19).then_some(memory::MOST_BYTES);
            if reads(used.access) {
                self.effects.push(Effect::Read { address, bytes });
            }
            if writes(used.access) {
                self.effects.push(Effect::ClobberMemory { address, bytes });
            }
        }
        if self.decoded.mnemonic() == Mnemonic::Dc {
            let address = somewhere(general(self.decoded.op_register(1)));
            self.effects.push(Effect::ClobberMemory { address, bytes: None });
        }
        let mut clobber = Clobber { flags: info.flags_written(), ..Clobber::default() };
        for used in info.used_registers() {
            let register = used.register;
            if let Some(number) = general(register) {
                clobber.registers |= if writes(used.access) { bit(number) } else { 0 };
                clobber.reads |= if reads(used.access) { bit(number) } else { 0 };
            } else if (register.is_simd() || register.is_sve()) && writes(used.access) {
                clobber.vectors |= bit(register.number());
            }
        }
        for index in 0..self.decoded.op_count() {
            clobber.from |= match self.decoded.op(index) {
                Operand::Reg { reg, .. } | Operand::RegBang(reg) => general(reg).map_or(0, bit),
                _ => 0,
            };
        }
        if clobber != Clobber::default() {
            self.effects.push(Effect::Clobber(clobber));
        }
    }
}

/// Returns whether an access changes what it accesses.
fn writes(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite)
}

fn reads(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Write | OpAccess::None)
}

/// Returns the test of a condition; `None` if it always holds.
fn test(condition: Condition) -> Option<Test> {
    let is_test = !matches!(condition, Condition::Al | Condition::Nv);
    is_test.then(|| Test::Compared(relation(condition)))
}

/// Returns whether the condition with a number holds with the flags N, Z, C and V, the last being the lowest bit.
fn holds(condition: u8, flags: u64) -> bool {
    let [negative, zero, carry, overflow] = [8, 4, 2, 1].map(|flag| flags & flag != 0);
    let holds = match condition >> 1 {
        0 => zero,
        1 => carry,
        2 => negative,
        3 => overflow,
        4 => carry && !zero,
        5 => negative == overflow,
        _ => negative == overflow && !zero,
    };
    holds != (condition & 1 == 1)
}

/// Returns what logic makes of two numbers, of which it may have inverted the second.
fn logic(mnemonic: Mnemonic, left: Expression, right: Expression) -> Expression {
    let is_and = matches!(mnemonic, Mnemonic::And | Mnemonic::Ands | Mnemonic::Bic | Mnemonic::Bics);
    let operation = match mnemonic {
        _ if is_and => Operation::And,
        Mnemonic::Eor | Mnemonic::Eon => Operation::Xor,
        _ => Operation::Or,
    };
    match (left, right) {
        (Expression::Constant(0), _) if is_and => Expression::Constant(0),
        (Expression::Constant(0), right) => right,
        // To make a number 0, or nothing.
        (left, right) if left == right && operation == Operation::Xor => Expression::Constant(0),
        (left, right) if left == right => left,
        (left, right) => Expression::of_two(operation, left, right),
    }
}

fn shifted(operation: fn(u8) -> Operation, bits: u8, value: Expression, by: u64) -> Expression {
    if by == 0 { value } else { Expression::of_two(operation(bits), value, Expression::Constant(by)) }
}

/// Returns the lowest bits of a number.
fn low(count: u64, of: Expression) -> Expression {
    match (count, of) {
        (8 | 16 | 32, Expression::Register { number, width }) if u64::from(width) * 8 >= count => {
            Expression::Register { number, width: (count / 8) as u8 }
        }
        (8 | 16 | 32, of) => Expression::of_one(Operation::ZeroExtend(count as u8), of),
        (64.., of) => of,
        (_, of) => Expression::of_two(Operation::And, of, Expression::Constant((1 << count) - 1)),
    }
}
