//! What follows from conditions that are known to hold.

use super::condition::{Condition, Relation};
use super::value::Value;

/// Returns whether a condition holds, if `facts` or its own form decide it.
pub fn decide(facts: &[Condition], condition: &Condition) -> Option<bool> {
    if is_impossible(condition) || implies(facts, &condition.negated()) {
        return Some(false);
    }
    (is_impossible(&condition.negated()) || implies(facts, condition)).then_some(true)
}

/// Returns whether nothing can fulfil a condition.
pub fn is_impossible(condition: &Condition) -> bool {
    let nothing_is_below =
        condition.relation == Relation::Below && condition.right == Value::constant(0);
    let itself = condition.left == condition.right
        && matches!(
            condition.relation,
            Relation::Below | Relation::Less | Relation::NotEqual
        );
    nothing_is_below || itself || condition.evaluate() == Some(false)
}

/// Returns whether a condition holds wherever all of `facts` do.
pub fn implies(facts: &[Condition], condition: &Condition) -> bool {
    if condition.evaluate() == Some(true) {
        return true;
    }
    let same_sides = |fact: &Condition| {
        fact.bits == condition.bits
            && ((fact.left == condition.left && fact.right == condition.right)
                || (is_symmetric(fact.relation)
                    && fact.left == condition.right
                    && fact.right == condition.left))
    };
    facts
        .iter()
        .any(|fact| same_sides(fact) && is_at_least_as_strong(fact.relation, condition.relation))
}

fn is_symmetric(relation: Relation) -> bool {
    matches!(relation, Relation::Equal | Relation::NotEqual)
}

/// Returns whether `left stronger right` implies `left weaker right`.
fn is_at_least_as_strong(stronger: Relation, weaker: Relation) -> bool {
    stronger == weaker
        || matches!(
            (stronger, weaker),
            (Relation::Below, Relation::BelowOrEqual | Relation::NotEqual)
                | (Relation::Less, Relation::LessOrEqual | Relation::NotEqual)
                | (
                    Relation::Equal,
                    Relation::BelowOrEqual | Relation::LessOrEqual
                )
        )
}
