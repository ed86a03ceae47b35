//! Executes multiplications, divisions, shifts and sign extensions.

use iced_x86::Mnemonic;

use super::atom::{Atom, Operation};
use super::bits::sign_extended;
use super::condition::Flags;
use super::operands::Step;
use super::value::Value;
use crate::code::instruction::operand_bits;
use crate::code::registers::{RAX, RDX};

/// How many bits to shift a number by to leave only its sign.
const SIGN: u32 = 63;

impl Step<'_> {
    /// Executes one of these instructions. Returns `false` if it is another, or not understood.
    pub fn arithmetic(&mut self) -> bool {
        let instruction = self.instruction;
        match instruction.mnemonic() {
            Mnemonic::Cdqe => {
                let whole = self.state.registers[RAX].clone();
                self.state.registers[RAX] = self.atoms.sign_extended(&whole, 32);
                true
            }
            Mnemonic::Cqo => {
                let sign = self.state.registers[RAX].clone();
                self.state.registers[RDX] = self.shifted(sign, SIGN, true);
                true
            }
            Mnemonic::Imul if instruction.op_count() == 1 => self.wide_product(),
            Mnemonic::Idiv => self.whole_quotient(),
            Mnemonic::Imul => self.product(),
            Mnemonic::Shl | Mnemonic::Sal | Mnemonic::Shr | Mnemonic::Sar => self.shift(),
            _ => false,
        }
    }

    /// Executes `imul` of two 8-byte numbers, and keeps the upper half.
    fn wide_product(&mut self) -> bool {
        if operand_bits(self.instruction, 0) != 64 {
            return false;
        }
        self.escape_operands();
        let of = vec![self.state.registers[RAX].clone(), self.read(0)];
        let operation = Operation::UpperHalf;
        self.state.registers[RDX] = self.atoms.value(Atom::Computed { operation, of });
        self.state.registers[RAX] = self.opaque(0);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes `idiv` of an 8-byte number.
    fn whole_quotient(&mut self) -> bool {
        let dividend = self.state.registers[RAX].clone();
        let sign = self.shifted(dividend.clone(), SIGN, true);
        if operand_bits(self.instruction, 0) != 64 || self.state.registers[RDX] != sign {
            return false;
        }
        let of = vec![dividend, self.read(0)];
        let operation = Operation::Whole;
        self.state.registers[RAX] = self.atoms.value(Atom::Computed { operation, of });
        self.state.registers[RDX] = self.opaque(0);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes `imul` by a known number.
    fn product(&mut self) -> bool {
        let right = self.instruction.op_count() - 1;
        let (left, right) = (self.read(right - 1), self.read(right));
        let product = match (left.as_constant(), right.as_constant()) {
            (_, Some(factor)) => Value::constant(0).plus(&left, factor),
            (Some(factor), _) => Value::constant(0).plus(&right, factor),
            (None, None) => return false,
        };
        self.escape_operands();
        self.write(0, product);
        self.state.flags = Flags::Unknown;
        true
    }

    /// Executes a shift by a known number of bits.
    fn shift(&mut self) -> bool {
        let bits = operand_bits(self.instruction, 0);
        let by = self.number(1).and_then(|by| u32::try_from(by).ok());
        let Some(by) = by.filter(|by| (1..u32::from(bits)).contains(by)) else {
            return false;
        };
        let value = self.read(0);
        let is_signed = self.instruction.mnemonic() == Mnemonic::Sar;
        let result = match self.instruction.mnemonic() {
            Mnemonic::Shl | Mnemonic::Sal => Value::constant(0).plus(&value, 1 << by),
            _ => match value.as_constant() {
                Some(number) if is_signed => {
                    let signed = sign_extended(number, u64::from(bits)) >> by;
                    Value::constant(signed.cast_unsigned())
                }
                Some(number) => Value::constant(number >> by),
                None if bits == 64 => self.shifted(value, by, is_signed),
                None => return false,
            },
        };
        self.escape_operands();
        self.write(0, result.clone());
        self.state.flags = Flags::ZeroAndSign { of: result, bits };
        true
    }

    /// Returns an 8-byte number shifted to the right.
    fn shifted(&mut self, value: Value, by: u32, is_signed: bool) -> Value {
        let operation = Operation::Shifted { by, is_signed };
        let of = vec![value];
        self.atoms.value(Atom::Computed { operation, of })
    }
}
