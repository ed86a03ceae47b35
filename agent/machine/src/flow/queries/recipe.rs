//! Recipes: how to compute a value from what is in reach at a probe site, and the search for one.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Serialize, Serializer};

use super::operand::{Operand, SlotBase};
use crate::budget::Budget;
use crate::flow::joins::execution::Execution;
use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms, Truth};
use crate::flow::values::condition::{Condition, Relation, implies, is_impossible};
use crate::flow::values::value::{AtomId, Value};
use crate::isa::Register;

/// The most places to combine with each other.
const MAX_PLACES: usize = 32;

/// A sum of operands, modulo 2^64.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// One to three summands.
    pub terms: Vec<Term>,
}

/// One summand.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// Whether it is subtracted.
    pub negative: bool,
    /// What is read.
    pub operand: Operand,
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            match (index, term.negative) {
                (0, false) => {}
                (0, true) => f.write_str("-")?,
                (_, false) => f.write_str(" + ")?,
                (_, true) => f.write_str(" - ")?,
            }
            write!(f, "{}", term.operand)?;
        }
        Ok(())
    }
}

impl Serialize for Recipe {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Operand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A value in reach, and where it is.
struct PlacedValue {
    operand: Operand,
    value: Value,
}

/// The places at one point that hold something of use, cheapest first.
pub struct Reach {
    places: Vec<PlacedValue>,
    budget: Budget,
}

impl Reach {
    /// Collects what is in reach in `state` and shares an atom with one of `wanted`.
    pub fn of(execution: &mut Execution<'_>, state: &State, wanted: &[&Value]) -> Self {
        let mut places = Vec::new();
        let mut add = |execution: &mut Execution<'_>, operand, value: &Value| {
            let value = resolve(&mut execution.atoms, value, &state.facts);
            if places.len() < MAX_PLACES && wanted.iter().any(|wanted| value.shares_atoms_with(wanted)) {
                places.push(PlacedValue { operand, value });
            }
        };
        for (number, value) in state.registers.iter().enumerate() {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            let register = Register { architecture: execution.code.architecture, number };
            add(execution, Operand::Register { register, width: 8, plus: 0 }, value);
        }
        if let Some(frame) = SlotBase::of(state, &mut execution.atoms) {
            let slots = state.stack.iter().filter(|(_, (_, width))| *width == 8);
            for (offset, (value, width)) in slots {
                if let Some(operand) = frame.slot(*offset, *width) {
                    add(execution, operand, value);
                }
            }
        }
        Self { places, budget: execution.code.budget.clone() }
    }

    /// Adds an operand that holds `value`, to be used last.
    pub fn add(&mut self, operand: Operand, value: Value) {
        self.places.push(PlacedValue { operand, value });
    }

    /// Finds the shortest sum of up to three places that equals `wanted`.
    pub fn recipe(&self, wanted: &Value) -> Option<Recipe> {
        (1..=3).find_map(|length| self.sum(wanted, length, 0)).map(|mut terms| {
            // What is added comes first, as people write it.
            terms.sort_by_key(|term| term.negative);
            Recipe { terms }
        })
    }

    fn sum(&self, wanted: &Value, length: usize, from: usize) -> Option<Vec<Term>> {
        for (index, place) in self.places.iter().enumerate().skip(from) {
            if !self.budget.spend(2) {
                return None;
            }
            for negative in [false, true] {
                let rest = wanted.plus(&place.value, if negative { 1 } else { u64::MAX });
                let term = Term { negative, operand: place.operand.clone() };
                if length == 1 {
                    if rest == Value::constant(0) {
                        return Some(vec![term]);
                    }
                } else if let Some(mut terms) = self.sum(&rest, length - 1, index + 1) {
                    terms.insert(0, term);
                    return Some(terms);
                }
            }
        }
        None
    }
}

/// How often to resolve one value further.
const MAX_RESOLUTIONS: usize = 8;

/// Decides every choice in `value` that `facts` decide.
pub fn resolve(atoms: &mut Atoms, value: &Value, facts: &[Condition]) -> Value {
    let mut value = value.clone();
    for _ in 0..MAX_RESOLUTIONS {
        let decided = value.atoms().find_map(|id| {
            let choice = match atoms.get(id)?.clone() {
                Atom::Select { condition, then, otherwise } => decide_select(&condition, &then, &otherwise, facts)
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

/// Returns the option that is chosen if `facts` hold.
fn decide_select(condition: &Condition, then: &Value, otherwise: &Value, facts: &[Condition]) -> Option<Value> {
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
            let difference =
                Condition { relation: Relation::BelowOrEqual, left: whole.minus(rest), right: whole.clone(), bits: 64 };
            if implies(facts, &difference) {
                return Some(rest.clone());
            }
        }
    }
    None
}

/// Returns the only one of `options` that does not contradict `facts`.
fn only_possible(atoms: &mut Atoms, atom: AtomId, options: &[Value], facts: &[Condition]) -> Option<Value> {
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
        for (summand, coefficient) in value.summands() {
            let replaced = self.substitute_atom(*summand, atom, by);
            result = result.plus(&replaced, *coefficient);
        }
        result
    }

    fn substitute_atom(&mut self, id: AtomId, atom: AtomId, by: &Value) -> Value {
        if id == atom {
            return by.clone();
        }
        // An atom is made after those it consists of, so the recursion ends.
        if id < atom || !self.budget.enter() {
            return Value::atom(id);
        }
        let replaced = self.substitute_inside(id, atom, by);
        self.budget.leave();
        replaced
    }

    fn substitute_inside(&mut self, id: AtomId, atom: AtomId, by: &Value) -> Value {
        match self.get(id).cloned() {
            Some(Atom::ZeroExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.zero_extended(&of, bits)
            }
            Some(Atom::SignExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.sign_extended(&of, bits)
            }
            Some(Atom::Select { condition, then, otherwise }) => {
                let condition = self.substitute_condition(&condition, atom, by);
                let then = self.substitute(&then, atom, by);
                let otherwise = self.substitute(&otherwise, atom, by);
                self.select(condition, then, otherwise)
            }
            Some(Atom::Truth(truth)) => {
                let conditions =
                    truth.conditions.iter().map(|condition| self.substitute_condition(condition, atom, by)).collect();
                self.truth_of(Truth { conditions, ..truth })
            }
            Some(Atom::LowByte { byte, rest }) => {
                let byte = self.substitute(&byte, atom, by);
                let rest = self.substitute(&rest, atom, by);
                self.low_byte(byte, rest)
            }
            _ => Value::atom(id),
        }
    }

    /// Replaces `atom` on both sides of a condition.
    pub fn substitute_condition(&mut self, condition: &Condition, atom: AtomId, by: &Value) -> Condition {
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
    use crate::budget::Budget;
    use crate::flow::values::condition::Relation;
    use crate::isa::Architecture;

    #[test]
    fn a_substitution_reaches_into_atoms_and_folds() {
        let mut atoms = Atoms::new(Architecture::X86_64, Budget::default());
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
