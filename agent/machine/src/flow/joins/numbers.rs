//! The numbers that registers hold at the heads of loops, whichever way control comes there.
//!
//! At a head, each register that the loop changes is an unknown, and what comes there is made of the unknowns of all
//! heads. Each unknown is a number if nothing else turns out to come there: so loops in loops, each of which leaves
//! what the other does, are understood.

use std::collections::{BTreeMap, HashMap};

use crate::code::graph::BlockId;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::value::{AtomId, Value, low_bits};

/// A register at the head of a loop.
pub type Place = (BlockId, usize);

/// A number, or none that is always the same.
type Held = Option<u64>;

/// What comes to the heads of loops.
#[derive(Default)]
pub struct Heads {
    coming: BTreeMap<Place, Vec<Value>>,
    places: HashMap<AtomId, Place>,
}

impl Heads {
    /// Adds a place, what it is as an unknown, and the values that come there.
    pub fn add(&mut self, place: Place, unknown: &Value, values: Vec<Value>) {
        self.places.extend(unknown.as_atom().map(|atom| (atom, place)));
        self.coming.insert(place, values);
    }

    /// Returns the places that always hold the same number.
    pub fn numbers(&self, atoms: &Atoms) -> Vec<(Place, u64)> {
        let mut held: BTreeMap<Place, Held> = BTreeMap::new();
        let mut is_new = true;
        // Each place changes at most twice: to a number, and to none.
        while is_new && atoms.budget.spend(self.coming.len() as u64) {
            is_new = false;
            for (place, values) in &self.coming {
                let Some(all) = self.all(values, &held, atoms) else { continue };
                is_new |= held.insert(*place, all) != Some(all);
            }
        }
        held.into_iter().filter_map(|(place, number)| Some((place, number?))).collect()
    }

    /// Returns what all of `values` are, given what places hold; `None` if nothing is known yet.
    fn all(&self, values: &[Value], held: &BTreeMap<Place, Held>, atoms: &Atoms) -> Option<Held> {
        let mut known = values.iter().filter_map(|value| self.resolved(value, held, atoms));
        let first = known.next()?;
        Some(first.filter(|_| known.all(|value| value == first)))
    }

    fn resolved(&self, value: &Value, held: &BTreeMap<Place, Held>, atoms: &Atoms) -> Option<Held> {
        let Some(atom) = value.as_atom() else { return Some(value.as_constant()) };
        if let Some(place) = self.places.get(&atom) {
            return held.get(place).copied();
        }
        // An atom is made after those it consists of, so the recursion ends.
        if !atoms.budget.enter() {
            return Some(None);
        }
        let resolved = match atoms.get(atom) {
            Some(Atom::ZeroExtended { bits, of }) => {
                let whole = self.resolved(of, held, atoms);
                whole.map(|whole| whole.map(|number| low_bits(number, (*bits).into())))
            }
            Some(Atom::Merged { options, .. }) => self.all(options, held, atoms),
            _ => Some(None),
        };
        atoms.budget.leave();
        resolved
    }
}
