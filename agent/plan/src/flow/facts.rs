//! What follows from conditions that are known to hold.

use crate::flow::value::{Condition, Relation, Value};

/// Whether a condition holds, where `facts` or its own form decide it.
pub fn decide(facts: &[Condition], condition: &Condition) -> Option<bool> {
    if is_impossible(condition) || implies(facts, &condition.negated()) {
        return Some(false);
    }
    (is_impossible(&condition.negated()) || implies(facts, condition)).then_some(true)
}

/// Whether nothing can fulfil it.
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

/// Whether it holds wherever all of `facts` do.
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

/// Whether `left stronger right` is enough for `left weaker right`.
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
