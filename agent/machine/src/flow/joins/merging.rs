//! Where paths meet: what holds whichever of them control comes by.

use std::rc::Rc;

use evictscope_model::FileAddress;

use crate::flow::state::State;
use crate::flow::values::atoms::{Atom, Atoms};
use crate::flow::values::flags::Flags;
use crate::flow::values::value::Value;

/// The most values that a merged value can be one of.
const MAX_OPTIONS: usize = 8;

impl State {
    /// Returns what holds at the block at `address`, whichever of `states` control comes from.
    pub fn merge(mut states: Vec<Self>, address: FileAddress, atoms: &mut Atoms) -> Option<Self> {
        let mut merged = states.pop()?;
        if states.is_empty() {
            return Some(merged);
        }
        let mut lost = Vec::new();
        let mut merge = |merged_value: &mut Value, others: Vec<Value>, index| {
            let mut options = others;
            options.push(merged_value.clone());
            *merged_value = merge_values(options, address, index, atoms, &mut lost);
        };
        for (number, merged_value) in merged.registers.iter_mut().enumerate() {
            if states.iter().all(|state| state.registers[number] == *merged_value) {
                continue;
            }
            let others = states.iter().map(|state| state.registers[number].clone());
            let index = u32::try_from(number).unwrap_or(u32::MAX);
            merge(merged_value, others.collect(), index);
        }
        for (at, (merged_value, width)) in &mut merged.stack {
            let same = |state: &Self| {
                state.stack.get(at).is_some_and(|(value, other)| value == merged_value && other == width)
            };
            if states.iter().all(same) {
                continue;
            }
            let others: Option<Vec<Value>> = states
                .iter()
                .map(|state| match state.stack.get(at) {
                    Some((value, other)) if other == width => Some(value.clone()),
                    _ => None,
                })
                .collect();
            if let Some(others) = others {
                let index = 0x8000_0000 | u32::try_from(at & 0x7fff_ffff).unwrap_or(0);
                merge(merged_value, others, index);
            }
        }
        merged.drop_slots_missing_in(&states, &mut lost);
        for state in &mut states {
            state.drop_slots_missing_in(std::slice::from_ref(&merged), &mut lost);
            if state.flags != merged.flags {
                merged.flags = Flags::Unknown;
            }
            if state.generation != merged.generation {
                merged.generation = address;
            }
            for offset in &state.escaped {
                merged.escape(*offset, atoms);
            }
            merged.lanes.retain(|lane, value| state.lanes.get(lane) == Some(value));
            Rc::make_mut(&mut merged.facts).retain(|fact| state.facts.contains(fact));
        }
        for value in lost {
            merged.escape_value(&value, atoms);
        }
        Some(merged)
    }

    /// Removes the slots that one of `others` does not have in the same width, and adds what they held to `lost`.
    fn drop_slots_missing_in(&mut self, others: &[Self], lost: &mut Vec<Value>) {
        let is_missing = |at: &i64, slot: &mut (Value, u8)| {
            !others.iter().all(|other| other.stack.get(at).is_some_and(|(_, width)| *width == slot.1))
        };
        let dropped = self.stack.extract_if(.., is_missing);
        lost.extend(dropped.map(|(_, (value, _))| value));
    }
}

/// Returns the value that is one of `options`. If there are too many, it is opaque and they are added to `lost`.
fn merge_values(
    options: Vec<Value>,
    address: FileAddress,
    index: u32,
    atoms: &mut Atoms,
    lost: &mut Vec<Value>,
) -> Value {
    match options.first() {
        Some(first) if options.iter().all(|option| option == first) => first.clone(),
        Some(_) if options.len() <= MAX_OPTIONS => atoms.value(Atom::Merged { address, options }),
        _ => {
            lost.extend(options);
            atoms.value(Atom::Opaque { address, index })
        }
    }
}
