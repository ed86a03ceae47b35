//! Replaces an atom by a value, and decides choices between values by what is known where they are used.

use super::atom::{Atom, Truth};
use super::atoms::Atoms;
use super::condition::{Condition, Relation, implies, is_impossible};
use super::value::{AtomId, Value};

/// How often to resolve one value further.
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

/// Returns the branch of a `cmov` that is taken if `facts` hold.
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
    // The smaller of `a` and `a - b` is `a - b`, if `b ≤ a` is known.
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

/// Returns the only one of `options` that does not contradict `facts`.
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

impl Atoms {
    /// Replaces `atom` in `value` wherever it occurs, also inside other atoms.
    pub fn substitute(&mut self, value: &Value, atom: AtomId, by: &Value) -> Value {
        self.budget.spend(1 + value.summands().len() as u64);
        let mut result = Value::constant(value.constant);
        for (own, coefficient) in value.summands() {
            let replaced = self.substitute_atom(*own, atom, by);
            result = result.plus(&replaced, *coefficient);
        }
        result
    }

    fn substitute_atom(&mut self, own: AtomId, atom: AtomId, by: &Value) -> Value {
        if own == atom {
            return by.clone();
        }
        // An atom is made after those it consists of, so the recursion ends.
        if own < atom || !self.budget.enter() {
            return Value::atom(own);
        }
        let replaced = self.substitute_inside(own, atom, by);
        self.budget.leave();
        replaced
    }

    fn substitute_inside(&mut self, own: AtomId, atom: AtomId, by: &Value) -> Value {
        match self.get(own).cloned() {
            Some(Atom::ZeroExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.zero_extended(&of, bits)
            }
            Some(Atom::SignExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.sign_extended(&of, bits)
            }
            Some(Atom::Select {
                condition,
                then,
                otherwise,
            }) => {
                let condition = self.substitute_condition(&condition, atom, by);
                let then = self.substitute(&then, atom, by);
                let otherwise = self.substitute(&otherwise, atom, by);
                self.select(condition, then, otherwise)
            }
            Some(Atom::Truth(truth)) => {
                let conditions = truth.conditions.iter();
                let conditions = conditions.map(|own| self.substitute_condition(own, atom, by));
                let conditions = conditions.collect();
                self.truth_of(Truth {
                    conditions,
                    ..truth
                })
            }
            Some(Atom::LowByte { byte, rest }) => {
                let byte = self.substitute(&byte, atom, by);
                let rest = self.substitute(&rest, atom, by);
                self.low_byte(byte, rest)
            }
            _ => Value::atom(own),
        }
    }

    /// Replaces `atom` on both sides of a condition.
    pub fn substitute_condition(
        &mut self,
        condition: &Condition,
        atom: AtomId,
        by: &Value,
    ) -> Condition {
        Condition {
            relation: condition.relation,
            left: self.substitute(&condition.left, atom, by),
            right: self.substitute(&condition.right, atom, by),
            bits: condition.bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Atom, Atoms, Condition, Value};
    use crate::flow::condition::Relation;

    #[test]
    fn sums_cancel() {
        let mut atoms = Atoms::default();
        let a = atoms.value(Atom::Entry(0));
        let b = atoms.value(Atom::Entry(1));
        assert_eq!(a.minus(&b).plus(&b, 1), a);
        assert_eq!(a.minus(&a), Value::constant(0));
    }

    #[test]
    fn a_substitution_reaches_into_atoms_and_folds() {
        let mut atoms = Atoms::default();
        let x = atoms.value(Atom::Entry(3));
        let below = atoms.zero_extended(&x.offset(u64::MAX), 32);
        let truth = atoms.truth(Condition {
            relation: Relation::BelowOrEqual,
            left: below,
            right: Value::constant(1),
            bits: 32,
        });
        let id = x.as_atom().unwrap_or_else(|| panic!("one atom"));
        for (number, holds) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
            let folded = atoms.substitute(&truth, id, &Value::constant(number));
            assert_eq!(folded, Value::constant(holds), "for {number}");
        }
    }
}
