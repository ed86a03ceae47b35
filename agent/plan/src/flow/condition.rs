//! Conditions: relations between two values.

use super::bits::{low_bits, sign_extended};
use super::value::Value;

/// A relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `=`
    Equal,
    /// `≠`
    NotEqual,
    /// `<`, unsigned
    Below,
    /// `≤`, unsigned
    BelowOrEqual,
    /// `<`, signed
    Less,
    /// `≤`, signed
    LessOrEqual,
}

/// `left relation right`, over the low `bits` bits of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The relation.
    pub relation: Relation,
    /// Its left side.
    pub left: Value,
    /// Its right side.
    pub right: Value,
    /// 8, 16, 32 or 64.
    pub bits: u8,
}

impl Condition {
    /// Returns the opposite.
    pub fn negated(&self) -> Self {
        let swapped = |relation| Self {
            relation,
            left: self.right.clone(),
            right: self.left.clone(),
            bits: self.bits,
        };
        let same = |relation| Self {
            relation,
            ..self.clone()
        };
        match self.relation {
            Relation::Equal => same(Relation::NotEqual),
            Relation::NotEqual => same(Relation::Equal),
            Relation::Below => swapped(Relation::BelowOrEqual),
            Relation::BelowOrEqual => swapped(Relation::Below),
            Relation::Less => swapped(Relation::LessOrEqual),
            Relation::LessOrEqual => swapped(Relation::Less),
        }
    }

    /// Returns whether it holds, if both sides are known.
    pub fn evaluate(&self) -> Option<bool> {
        let bits = u64::from(self.bits);
        let left = low_bits(self.left.as_constant()?, bits);
        let right = low_bits(self.right.as_constant()?, bits);
        let signed = |value| sign_extended(value, bits);
        Some(match self.relation {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::Below => left < right,
            Relation::BelowOrEqual => left <= right,
            Relation::Less => signed(left) < signed(right),
            Relation::LessOrEqual => signed(left) <= signed(right),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Condition, Relation, Value};

    #[test]
    fn narrow_comparisons_ignore_the_upper_bits() {
        let condition = Condition {
            relation: Relation::Less,
            left: Value::constant(0x1_ffff_ffff),
            right: Value::constant(0),
            bits: 32,
        };
        assert_eq!(condition.evaluate(), Some(true));
        assert_eq!(condition.negated().evaluate(), Some(false));
    }
}
