//! Sums, logic and choices.

use iced_x86::{Mnemonic, OpKind};

use super::flags::Flags;
use super::operands::Step;
use super::value::Value;
use crate::code::instruction::operand_bits;

impl Step<'_> {
    /// Executes `add`, `sub`, `inc` and `dec`.
    pub fn sum(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let left = self.read(0);
        let right = match self.instruction.mnemonic() {
            Mnemonic::Inc | Mnemonic::Dec => Value::constant(1),
            _ => self.read(1),
        };
        let result = match self.instruction.mnemonic() {
            Mnemonic::Sub | Mnemonic::Dec => left.minus(&right),
            _ => left.plus(&right, 1),
        };
        let result = match result.is_small() {
            true => result,
            false => self.lose(&[&left, &right]),
        };
        self.write(0, result.clone());
        self.state.flags = match self.instruction.mnemonic() {
            Mnemonic::Sub => Flags::Comparison { left, right, bits },
            _ => Flags::ZeroAndSign { of: result, bits },
        };
    }

    /// Executes `cmp`.
    pub fn compare(&mut self) {
        self.state.flags = Flags::Comparison {
            left: self.read(0),
            right: self.read(1),
            bits: operand_bits(self.instruction, 0),
        };
    }

    /// Executes `and`, `or`, `xor` and `test`.
    pub fn logic(&mut self) {
        let bits = operand_bits(self.instruction, 0);
        let (left, right) = (self.read(0), self.read(1));
        let mnemonic = self.instruction.mnemonic();
        let is_and = matches!(mnemonic, Mnemonic::Test | Mnemonic::And);
        let result = match (left.as_constant(), right.as_constant()) {
            _ if left == right && mnemonic == Mnemonic::Xor => Value::constant(0),
            _ if left == right => left,
            (Some(left), Some(right)) => Value::constant(match mnemonic {
                Mnemonic::Or => left | right,
                Mnemonic::Xor => left ^ right,
                _ => left & right,
            }),
            (_, Some(1)) if is_and && self.atoms.is_truth(&left) => left,
            (_, Some(u64::MAX)) if mnemonic == Mnemonic::Or => Value::constant(u64::MAX),
            _ if mnemonic == Mnemonic::Test => self.opaque(0),
            _ => self.lose(&[&left, &right]),
        };
        if mnemonic != Mnemonic::Test {
            self.write(0, result.clone());
        }
        // Logic clears carry and overflow, as a comparison with zero does.
        self.state.flags = Flags::Comparison {
            left: result,
            right: Value::constant(0),
            bits,
        };
    }

    /// Executes `cmovcc` and `setcc`.
    pub fn choice(&mut self) {
        let condition = self
            .state
            .flags
            .condition(self.instruction.condition_code());
        let value = if self.instruction.op_count() == 1 {
            match condition {
                Some(condition) => self.atoms.truth(condition),
                None => {
                    let byte = self.opaque(0);
                    self.atoms.zero_extended(&byte, 8)
                }
            }
        } else {
            let (then, otherwise) = (self.read(1), self.read(0));
            match condition {
                Some(condition) => self.atoms.select(condition, then, otherwise),
                None if then == otherwise => then,
                None => self.lose(&[&then, &otherwise]),
            }
        };
        self.write(0, value);
    }

    /// Returns whether it is `cmovcc` or `setcc`, if it has a condition at all.
    pub fn is_choice(&self) -> bool {
        matches!(
            self.instruction.op0_kind(),
            OpKind::Register | OpKind::Memory
        ) && self.instruction.op_count() <= 2
    }

    /// Makes the result opaque. Addresses on the stack that it was made of escape.
    fn lose(&mut self, operands: &[&Value]) -> Value {
        for operand in operands {
            self.state.escape_value(operand, self.atoms);
        }
        self.opaque(0)
    }
}
