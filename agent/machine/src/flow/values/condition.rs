//! Conditions: relations between two values, and what follows from those that are known to hold.

use std::rc::Rc;

use super::atoms::Atoms;
use super::value::{Value, low_bits, sign_extended};
use crate::ir;

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
    /// How the two sides compare.
    pub relation: Relation,
    /// The left side.
    pub left: Value,
    /// The right side.
    pub right: Value,
    /// 8, 16, 32 or 64; fewer if it says whether the highest of them is set.
    pub bits: u8,
}

impl Condition {
    /// Returns the opposite.
    pub fn negated(&self) -> Self {
        let swapped = |relation| Self { relation, left: self.right.clone(), right: self.left.clone(), bits: self.bits };
        let same = |relation| Self { relation, ..self.clone() };
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

/// Returns whether a condition holds, if `facts` or its own form decide it.
pub fn decide(facts: &[Condition], condition: &Condition) -> Option<bool> {
    if is_impossible(condition) || implies(facts, &condition.negated()) {
        return Some(false);
    }
    (is_impossible(&condition.negated()) || implies(facts, condition)).then_some(true)
}

/// Returns whether nothing can fulfil a condition.
pub fn is_impossible(condition: &Condition) -> bool {
    let nothing_is_below = condition.relation == Relation::Below && condition.right == Value::constant(0);
    let itself = condition.left == condition.right
        && matches!(condition.relation, Relation::Below | Relation::Less | Relation::NotEqual);
    nothing_is_below || itself || condition.evaluate() == Some(false)
}

/// Returns whether a condition holds whenever all of `facts` do.
pub fn implies(facts: &[Condition], condition: &Condition) -> bool {
    if condition.evaluate() == Some(true) {
        return true;
    }
    let same_sides = |fact: &Condition| {
        fact.bits == condition.bits
            && ((fact.left == condition.left && fact.right == condition.right)
                || (matches!(fact.relation, Relation::Equal | Relation::NotEqual)
                    && fact.left == condition.right
                    && fact.right == condition.left))
    };
    facts.iter().any(|fact| same_sides(fact) && is_at_least_as_strong(fact.relation, condition.relation))
}

/// Returns whether `left stronger right` implies `left weaker right`.
fn is_at_least_as_strong(stronger: Relation, weaker: Relation) -> bool {
    stronger == weaker
        || matches!(
            (stronger, weaker),
            (Relation::Below, Relation::BelowOrEqual | Relation::NotEqual)
                | (Relation::Less, Relation::LessOrEqual | Relation::NotEqual)
                | (Relation::Equal, Relation::BelowOrEqual | Relation::LessOrEqual)
        )
}

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Nothing known.
    Unknown,
    /// They are those of `left - right` over `bits` bits.
    Comparison {
        /// What is subtracted from.
        left: Value,
        /// What is subtracted.
        right: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
    /// They are those of a comparison if a condition holds.
    Conditional {
        /// The condition.
        condition: Condition,
        /// The flags of the comparison.
        then: Box<Flags>,
        /// In which ways numbers compare if the condition does not hold.
        otherwise: Rc<[ir::Relation]>,
    },
    /// Zero and sign flag are those of a result; carry and overflow are not known.
    ZeroAndSign {
        /// The result.
        of: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
}

impl Flags {
    /// Returns the condition that holds if the two sides of the last comparison compare in a way.
    pub fn condition(&self, compared: ir::Relation, atoms: &mut Atoms) -> Option<Condition> {
        let (left, right, bits, exact) = match self {
            Self::Unknown => return None,
            Self::Conditional { condition, then, otherwise } => {
                let then = then.condition(compared, atoms)?;
                // Either both hold, or one of them does.
                let all = !otherwise.contains(&compared);
                let first = if all { condition.clone() } else { condition.negated() };
                return Some(atoms.joined(all, [first, then]));
            }
            Self::Comparison { left, right, bits } => (left.clone(), right.clone(), *bits, true),
            Self::ZeroAndSign { of, bits } => (of.clone(), Value::constant(0), *bits, false),
        };
        let zero = Value::constant(0);
        let (relation, left, right) = match compared {
            ir::Relation::Equal => (Relation::Equal, left, right),
            ir::Relation::NotEqual => (Relation::NotEqual, left, right),
            ir::Relation::Negative => (Relation::Less, left.minus(&right), zero),
            ir::Relation::NotNegative => (Relation::LessOrEqual, zero, left.minus(&right)),
            _ if !exact => return None,
            ir::Relation::Below => (Relation::Below, left, right),
            ir::Relation::AboveOrEqual => (Relation::BelowOrEqual, right, left),
            ir::Relation::Above => (Relation::Below, right, left),
            ir::Relation::BelowOrEqual => (Relation::BelowOrEqual, left, right),
            ir::Relation::Less => (Relation::Less, left, right),
            ir::Relation::GreaterOrEqual => (Relation::LessOrEqual, right, left),
            ir::Relation::Greater => (Relation::Less, right, left),
            ir::Relation::LessOrEqual => (Relation::LessOrEqual, left, right),
            ir::Relation::Other(_) => return None,
        };
        Some(Condition { relation, left, right, bits })
    }

    /// Returns the values that they depend on.
    pub fn values_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Comparison { left, right, .. } => vec![left, right],
            Self::Conditional { condition, then, .. } => {
                let mut all = then.values_mut();
                all.extend([&mut condition.left, &mut condition.right]);
                all
            }
            Self::ZeroAndSign { of, .. } => vec![of],
        }
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
