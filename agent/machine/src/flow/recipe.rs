//! Recipes: how to compute a value from what is in reach at a probe site, and the search for one.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::{Serialize, Serializer};

use super::execution::Execution;
use super::frame::Frame;
use super::operand::Operand;
use super::resolve::resolve;
use super::state::State;
use super::value::Value;
use crate::budget::Budget;

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
struct Place {
    operand: Operand,
    value: Value,
}

/// The places at one point that hold something of use, cheapest first.
pub struct Reach {
    places: Vec<Place>,
    budget: Budget,
}

impl Reach {
    /// Collects what is in reach in `state` and shares an atom with one of `wanted`.
    pub fn of(execution: &mut Execution<'_>, state: &State, wanted: &[&Value]) -> Self {
        let mut places = Vec::new();
        let mut add = |execution: &mut Execution<'_>, operand, value: &Value| {
            let value = resolve(&mut execution.atoms, value, &state.facts);
            if places.len() < MAX_PLACES
                && wanted.iter().any(|wanted| value.shares_atoms_with(wanted))
            {
                places.push(Place { operand, value });
            }
        };
        for (number, value) in state.registers.iter().enumerate() {
            let number = u8::try_from(number).unwrap_or(u8::MAX);
            add(
                execution,
                Operand::Register {
                    number,
                    width: 8,
                    plus: 0,
                },
                value,
            );
        }
        if let Some(frame) = Frame::of(state, &mut execution.atoms) {
            let slots = state.stack.iter().filter(|(_, (_, width))| *width == 8);
            for (offset, (value, width)) in slots {
                if let Some(operand) = frame.slot(*offset, *width) {
                    add(execution, operand, value);
                }
            }
        }
        Self {
            places,
            budget: execution.code.budget.clone(),
        }
    }

    /// Adds an operand that holds `value`, to be used last.
    pub fn add(&mut self, operand: Operand, value: Value) {
        self.places.push(Place { operand, value });
    }

    /// Finds the shortest sum of up to three places that equals `wanted`.
    pub fn recipe(&self, wanted: &Value) -> Option<Recipe> {
        (1..=3)
            .find_map(|length| self.sum(wanted, length, 0))
            .map(|mut terms| {
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
                let term = Term {
                    negative,
                    operand: place.operand.clone(),
                };
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
