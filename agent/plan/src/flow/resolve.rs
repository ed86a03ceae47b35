//! Decides choices between values by what is known where they are used.

use super::atom::Atom;
use super::atoms::Atoms;
use super::condition::{Condition, Relation};
use super::facts::{implies, is_impossible};
use super::value::{AtomId, Value};

/// How often one value is resolved further.
const MAX_RESOLUTIONS: usize = 8;

/// Decides every choice in `value` that `facts` decide.
pub fn resolve(atoms: &mut Atoms, value: &Value, facts: &[Condition]) -> Value {
    let mut value = value.clone();
    for _ in 0..MAX_RESOLUTIONS {
        let decided = value.atoms().find_map(|id| {
            let choice = match atoms.get(id)?.clone() {
                Atom::Select {
                    condition,
                    then,
                    otherwise,
                } => decide_select(&condition, &then, &otherwise, facts)
                    .or_else(|| only_possible(atoms, id, &[then, otherwise], facts)),
                Atom::Merged { options, .. } => only_possible(atoms, id, &options, facts),
                _ => None,
            };
            Some((id, choice?))
        });
        let Some((id, choice)) = decided else { break };
        value = atoms.substitute(&value, id, &choice);
    }
    value
}

/// Returns the branch of a `cmov` that is taken where `facts` hold.
fn decide_select(
    condition: &Condition,
    then: &Value,
    otherwise: &Value,
    facts: &[Condition],
) -> Option<Value> {
    if implies(facts, condition) {
        return Some(then.clone());
    }
    if implies(facts, &condition.negated()) {
        return Some(otherwise.clone());
    }
    // The smaller of `a` and `a - b` is `a - b`, where `b ≤ a` is known.
    let is_minimum = matches!(condition.relation, Relation::Below | Relation::BelowOrEqual)
        && condition.bits == 64
        && condition.left == *then
        && condition.right == *otherwise;
    if is_minimum {
        for (whole, rest) in [(then, otherwise), (otherwise, then)] {
            let difference = Condition {
                relation: Relation::BelowOrEqual,
                left: whole.minus(rest),
                right: whole.clone(),
                bits: 64,
            };
            if implies(facts, &difference) {
                return Some(rest.clone());
            }
        }
    }
    None
}

/// Returns the one of `options` that does not contradict `facts`.
fn only_possible(
    atoms: &mut Atoms,
    atom: AtomId,
    options: &[Value],
    facts: &[Condition],
) -> Option<Value> {
    let mut possible = options.iter().filter(|option| {
        !facts.iter().any(|fact| {
            let fact = atoms.substitute_condition(fact, atom, option);
            is_impossible(&fact)
        })
    });
    let only = possible.next()?;
    possible.all(|other| other == only).then(|| only.clone())
}
