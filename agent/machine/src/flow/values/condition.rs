//! Conditions: relations between two values, and what follows from those that are known to hold.

use super::value::{Value, low_bits, sign_extended};

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
