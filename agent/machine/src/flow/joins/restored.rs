//! The registers that loops leave as they were: what each holds at the head of a loop, whichever way control comes
//! there.
//!
//! At a head, each register that the loop changes is an unknown, and what comes there is made of the unknowns of all
//! heads. Each is what all that comes there is, as long as nothing else turns out to come there: so loops in loops,
//! each of which leaves what the other does, are understood.

use std::collections::{BTreeMap, HashMap};

use evictscope_model::FileAddress;

use super::loops::changed;
use crate::code::graph::BlockId;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::value::{AtomId, Value};

/// A register at the head of a loop.
type Place = (BlockId, usize);

/// What comes to the heads of loops.
#[derive(Default)]
pub struct Heads {
    /// By place: the unknown, and the values that come there.
    coming: BTreeMap<Place, (Value, Vec<Value>)>,
    places: HashMap<AtomId, Place>,
}

impl Heads {
    /// Adds the values that come to a place at the head at `address`.
    pub fn add(&mut self, atoms: &mut Atoms, place: Place, address: FileAddress, values: Vec<Value>) {
        let unknown = changed(place.1, address, atoms);
        self.places.extend(unknown.as_atom().map(|atom| (atom, place)));
        self.coming.insert(place, (unknown, values));
    }

    /// Returns the places that always hold what they held before the loop.
    pub fn restored(&self, atoms: &mut Atoms) -> Vec<Place> {
        let mut held: BTreeMap<Place, Value> = BTreeMap::new();
        let mut is_new = true;
        while is_new {
            is_new = false;
            for (place, (unknown, values)) in &self.coming {
                // Where different values come, that is so.
                if held.get(place) == Some(unknown) || !atoms.budget.spend(values.len() as u64) {
                    continue;
                }
                let Some(all) = self.same(values, unknown, &held, atoms) else { continue };
                is_new |= held.insert(*place, all.clone()) != Some(all);
            }
        }
        let is_restored = |(place, value): (Place, Value)| (value != self.coming[&place].0).then_some(place);
        held.into_iter().filter_map(is_restored).collect()
    }

    /// Returns what all of `values` are, given what places hold: `other` if they differ, and `None` if nothing is known
    /// yet.
    fn same(&self, values: &[Value], other: &Value, held: &BTreeMap<Place, Value>, atoms: &mut Atoms) -> Option<Value> {
        let mut known = values.iter().filter_map(|value| self.resolved(value, held, atoms));
        let first = known.next()?;
        Some(if known.all(|value| value == first) { first } else { other.clone() })
    }

    /// Returns what a value is, given what places hold; `None` if nothing is known yet.
    fn resolved(&self, value: &Value, held: &BTreeMap<Place, Value>, atoms: &mut Atoms) -> Option<Value> {
        let Some(atom) = value.as_atom() else { return Some(value.clone()) };
        if let Some(place) = self.places.get(&atom) {
            return held.get(place).cloned();
        }
        let made = match atoms.get(atom) {
            Some(made @ (Atom::ZeroExtended { .. } | Atom::Merged { .. })) => made.clone(),
            _ => return Some(value.clone()),
        };
        // An atom is made after those it consists of, so the recursion ends.
        if !atoms.budget.enter() {
            return Some(value.clone());
        }
        let resolved = match made {
            Atom::ZeroExtended { bits, of } => {
                self.resolved(&of, held, atoms).map(|whole| atoms.zero_extended(&whole, bits))
            }
            Atom::Merged { options, .. } => self.same(&options, value, held, atoms),
            _ => None,
        };
        atoms.budget.leave();
        resolved
    }
}
