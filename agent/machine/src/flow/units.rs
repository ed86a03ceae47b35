//! Values that are 8-byte numbers in another unit: divided by 1000, or multiplied as numbers of type `double`.

use evictscope_model::FileAddress;

use super::atom::{Atom, Operation};
use super::atoms::Atoms;
use super::value::Value;

/// What compilers multiply by to divide by 1000: 2^71 / 1000, rounded up.
const RECIPROCAL: u64 = 0x20c4_9ba5_e353_f7cf;
/// The upper half of the product, rounded down: 71 - 64 bits.
const ROUNDED_DOWN: Operation = Operation::Shifted { by: 7, is_signed: true };

impl Atoms {
    /// Returns the global of whose signed 8-byte number `value` is a thousandth, rounded towards 0.
    pub fn as_thousandth(&self, value: &Value) -> Option<FileAddress> {
        if let Some([dividend, divisor]) = self.computed(value, Operation::Whole) {
            return self.as_global(dividend).filter(|_| divisor.as_constant() == Some(1000));
        }
        // Rounded down, plus 1 if the number is negative.
        let [one, other] = *value.summands() else {
            return None;
        };
        let parts = [(one, other), (other, one)];
        let (product, number, sign) = parts.into_iter().find_map(|((rounded, one), sign)| {
            let [product] = self.computed(&Value::atom(rounded), ROUNDED_DOWN)?;
            let number = self.multiplied(product).filter(|_| one == 1 && value.constant == 0)?;
            Some(([&Value::atom(rounded), product].map(Value::clone), number, sign))
        })?;
        let is_signed = sign.1 == u64::MAX;
        let sign_bit = Operation::Shifted { by: 63, is_signed };
        let [of] = self.computed(&Value::atom(sign.0), sign_bit)?;
        // They all have the sign of the number.
        let is_its = of == number || product.contains(of);
        self.as_global(number).filter(|_| is_its && (is_signed || sign.1 == 1))
    }

    /// Returns the number whose product with [`RECIPROCAL`] has `value` as its upper half.
    fn multiplied(&self, value: &Value) -> Option<&Value> {
        match self.computed(value, Operation::UpperHalf)? {
            [number, factor] | [factor, number] if factor.as_constant() == Some(RECIPROCAL) => Some(number),
            _ => None,
        }
    }

    /// Returns the globals of type `double` whose product `value` is.
    pub fn as_product(&self, value: &Value) -> Option<[FileAddress; 2]> {
        let [left, right] = self.computed(value, Operation::Product)?;
        Some([self.as_global(left)?, self.as_global(right)?])
    }

    /// Returns the operands from which an operation makes a value.
    pub fn computed<const N: usize>(&self, value: &Value, by: Operation) -> Option<&[Value; N]> {
        match self.get(value.as_atom()?)? {
            Atom::Computed { operation, of } if *operation == by => of.as_slice().try_into().ok(),
            _ => None,
        }
    }
}
