//! What expressions are, in a state.

use evictscope_model::FileAddress;

use super::places::{MemoryPlace, effective_address, place};
use super::{Step, WORD};
use crate::flow::values::atoms::Atom;
use crate::flow::values::value::{Value, low_bits, sign_extended};
use crate::ir::{Address, Expression, Operation};

/// How far an aligned stack pointer is assumed to be from where it was: farther than any frame is large.
const ALIGNED: u64 = 1 << 32;

impl Step<'_> {
    /// Returns the value of an expression. What is not followed is an atom of its own.
    pub(super) fn evaluate(&mut self, expression: &Expression) -> Value {
        self.part += 1;
        let part = self.part;
        match expression {
            Expression::Constant(number) => Value::constant(*number),
            Expression::Register { number, width } => {
                let whole = &self.state.registers[usize::from(*number)];
                self.atoms.zero_extended(whole, width.saturating_mul(8))
            }
            Expression::Temporary(number) => {
                let kept = self.temporaries.get(usize::from(*number)).cloned();
                kept.unwrap_or_else(|| self.opaque(part))
            }
            Expression::Lane { vector, lane } => {
                let known = self.state.lanes.get(&(*vector, *lane)).cloned();
                known.unwrap_or_else(|| self.opaque(part))
            }
            Expression::Load { address, width } => self.load(address, *width, part),
            Expression::Address(address) => {
                self.address(address).unwrap_or_else(|| self.unknown_address(address, part))
            }
            Expression::Computed(Operation::And, of) if self.is_alignment(of) => {
                let pointer = self.convention().stack_pointer();
                self.state.registers[pointer].offset(ALIGNED.wrapping_neg())
            }
            Expression::Computed(operation, of) => {
                let of: Vec<Value> = of.iter().map(|operand| self.evaluate(operand)).collect();
                self.computed(*operation, &of).unwrap_or_else(|| self.lost(&of, part))
            }
            Expression::Select(test, options) => {
                let [then, otherwise] = [0, 1].map(|option| self.evaluate(&options[option]));
                match self.state.condition(*test, self.atoms) {
                    Some(condition) => self.atoms.select(condition, then, otherwise),
                    None if then == otherwise => then,
                    None => self.lost(&[then, otherwise], part),
                }
            }
            Expression::Truth(test) => match self.state.condition(*test, self.atoms) {
                Some(condition) => self.atoms.truth(condition),
                None => self.opaque_bytes(part, 1),
            },
            Expression::Unknown => self.opaque(part),
        }
    }

    /// Returns the value of 8 bytes that are moved with others; `None` if they are not known. Unlike the load of a slot
    /// by itself, this one leaves narrower slots as they are.
    pub(super) fn lane(&mut self, expression: &Expression) -> Option<Value> {
        match expression {
            Expression::Lane { vector, lane } => self.state.lanes.get(&(*vector, *lane)).cloned(),
            Expression::Load { address, width: WORD } => match self.place(address) {
                MemoryPlace::Stack(offset) => {
                    let (value, width) = self.state.stack.get(&offset)?;
                    (*width == WORD).then(|| value.clone())
                }
                MemoryPlace::Global(address) => Some(self.load_global(address, WORD)),
                MemoryPlace::SomewhereOnStack | MemoryPlace::Unknown => None,
            },
            Expression::Computed(Operation::Add, of) if let [left, right] = &**of => {
                let sum = self.lane(left)?.plus(&self.lane(right)?, 1);
                self.atoms.is_short(&sum).then_some(sum)
            }
            Expression::Computed(operation, of) if is_of_doubles(*operation) => {
                let mut values = Vec::new();
                for operand in of {
                    self.part += 1;
                    let part = self.part;
                    values.push(self.lane(operand).unwrap_or_else(|| self.opaque(part)));
                }
                self.computed(*operation, &values)
            }
            Expression::Unknown => None,
            _ => Some(self.evaluate(expression)),
        }
    }

    /// Computes a value; `None` if that is not followed.
    fn computed(&mut self, operation: Operation, of: &[Value]) -> Option<Value> {
        match (operation, of) {
            (Operation::Add, [left, right]) => self.short(left.plus(right, 1)),
            (Operation::Subtract, [left, right]) => self.short(left.minus(right)),
            (Operation::Multiply, [left, right]) => {
                let product = match (left.as_constant(), right.as_constant()) {
                    (_, Some(factor)) => Value::constant(0).plus(left, factor),
                    (Some(factor), _) => Value::constant(0).plus(right, factor),
                    (None, None) => return None,
                };
                self.escape(of);
                Some(product)
            }
            (Operation::And | Operation::Or | Operation::Xor, [left, right]) => self.logic(operation, left, right),
            (Operation::ZeroExtend(bits), [value]) => Some(self.atoms.zero_extended(value, bits)),
            (Operation::SignExtend(bits), [value]) => Some(self.atoms.sign_extended(value, bits)),
            (
                Operation::ShiftLeft(bits) | Operation::ShiftRight(bits) | Operation::ShiftRightSigned(bits),
                [value, by],
            ) => {
                let by = by.as_constant().filter(|by| (1..u64::from(bits)).contains(by))?;
                self.escape(of);
                self.shifted(operation, bits, value, by)
            }
            (Operation::Whole, [upper, lower, divisor]) => {
                let sign = self.shifted(Operation::ShiftRightSigned(64), 64, lower, 63)?;
                let of = vec![lower.clone(), divisor.clone()];
                (sign == *upper).then(|| self.atoms.value(Atom::Computed { operation, of }))
            }
            _ => {
                self.escape(of);
                Some(self.atoms.value(Atom::Computed { operation, of: of.to_vec() }))
            }
        }
    }

    fn short(&self, sum: Value) -> Option<Value> {
        self.atoms.is_short(&sum).then_some(sum)
    }

    fn shifted(&mut self, operation: Operation, bits: u8, value: &Value, by: u64) -> Option<Value> {
        let known = value.as_constant();
        Some(match (operation, known) {
            (Operation::ShiftLeft(_), _) => Value::constant(0).plus(value, 1 << by),
            (Operation::ShiftRightSigned(_), Some(number)) => {
                Value::constant((sign_extended(number, bits.into()) >> by).cast_unsigned())
            }
            (_, Some(number)) => Value::constant(low_bits(number, bits.into()) >> by),
            (_, None) if bits == 64 => {
                let of = vec![value.clone(), Value::constant(by)];
                self.atoms.value(Atom::Computed { operation, of })
            }
            _ => return None,
        })
    }

    fn logic(&mut self, operation: Operation, left: &Value, right: &Value) -> Option<Value> {
        match (left.as_constant(), right.as_constant()) {
            _ if left == right && operation == Operation::Xor => Some(Value::constant(0)),
            _ if left == right => Some(left.clone()),
            (Some(left), Some(right)) => Some(Value::constant(match operation {
                Operation::Or => left | right,
                Operation::Xor => left ^ right,
                _ => left & right,
            })),
            (_, Some(u64::MAX)) if operation == Operation::Or => Some(Value::constant(u64::MAX)),
            // Numbers that say whether conditions hold.
            (_, Some(1)) if operation == Operation::Xor => self.atoms.inverted(left),
            (_, Some(1)) if operation == Operation::And => {
                let low = self.atoms.zero_extended(left, 8);
                self.atoms.as_truth(&low).is_some().then_some(low)
            }
            _ if operation == Operation::Xor => None,
            _ => self.atoms.combined(operation == Operation::And, left, right),
        }
    }

    /// Returns whether it aligns the stack pointer, and objects are told apart by what they are reached from.
    fn is_alignment(&self, of: &[Expression]) -> bool {
        let pointer = Expression::Register { number: self.convention().stack_pointer, width: WORD };
        of.first() == Some(&pointer) && self.atoms.limits.reach.is_some()
    }

    fn load(&mut self, address: &Address, width: u8, part: u32) -> Value {
        match self.place(address) {
            MemoryPlace::Stack(offset) => self.load_slot(offset, width, part),
            MemoryPlace::Global(address) => self.load_global(address, width),
            MemoryPlace::SomewhereOnStack | MemoryPlace::Unknown => self.opaque_bytes(part, width),
        }
    }

    fn load_global(&mut self, address: FileAddress, width: u8) -> Value {
        let linked = || self.known.linked.get(&address).filter(|_| width == WORD).map(|to| to.get());
        match self.known.loads.get(&(address, width)).copied().or_else(linked) {
            Some(number) => Value::constant(number),
            None => self.atoms.value(Atom::Global { address, width, generation: self.state.generation }),
        }
    }

    fn load_slot(&mut self, offset: i64, width: u8, part: u32) -> Value {
        if let Some((value, stored)) = self.state.stack.get(&offset)
            && *stored >= width
        {
            return self.atoms.zero_extended(value, width.saturating_mul(8));
        }
        let value = self.opaque_bytes(part, width);
        self.state.store_slot(offset, width, value.clone());
        value
    }

    /// Computes an address, if that is followed.
    pub(super) fn address(&mut self, address: &Address) -> Option<Value> {
        effective_address(self.atoms, self.state, address)
    }

    /// Makes an unknown address. If it may be on the stack, any slot escapes.
    fn unknown_address(&mut self, address: &Address, part: u32) -> Value {
        if let MemoryPlace::SomewhereOnStack = self.place(address) {
            self.state.escape(i64::MIN, self.atoms);
        }
        self.opaque(part)
    }

    /// Finds out where an address points.
    pub(super) fn place(&mut self, address: &Address) -> MemoryPlace {
        place(self.atoms, self.state, address)
    }

    /// Makes a result opaque. Addresses on the stack from which it was made escape.
    fn lost(&mut self, of: &[Value], part: u32) -> Value {
        self.escape(of);
        self.opaque(part)
    }

    fn escape(&mut self, values: &[Value]) {
        for value in values.iter().filter(|_| !self.is_compared) {
            self.state.escape_value(value, self.atoms);
        }
    }

    /// Makes a value about which nothing is known, as a numbered result of the instruction.
    pub(super) fn opaque(&mut self, index: u32) -> Value {
        self.atoms.value(Atom::Opaque { address: self.instruction.address, index })
    }

    fn opaque_bytes(&mut self, index: u32, bytes: u8) -> Value {
        let value = self.opaque(index);
        self.atoms.zero_extended(&value, bytes.saturating_mul(8))
    }
}

/// Returns whether an operation makes a number of type `double`.
fn is_of_doubles(operation: Operation) -> bool {
    matches!(
        operation,
        Operation::Double | Operation::DoubleProduct | Operation::DoubleProductAndSum | Operation::DoubleQuotient
    )
}
