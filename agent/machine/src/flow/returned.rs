//! The numbers that a function returns.
//!
//! Only what the code sets the result to is looked at, not what it computes. So the set may lack numbers, but has none
//! that the function does not name.

use std::collections::BTreeSet;

use evictscope_model::FileAddress;

use crate::code::graph::BlockId;
use crate::flow::atom::Atom;
use crate::flow::execution::Execution;
use crate::flow::value::Value;

/// The most values to look at.
const MAX_VALUES: usize = 256;
/// The register of a function's result.
const RAX: usize = 0;

/// Returns the numbers that the function's result is set to, over 32 bits.
pub fn numbers(execution: &mut Execution<'_>) -> BTreeSet<u32> {
    let code = execution.code;
    let mut numbers = BTreeSet::new();
    let mut values: Vec<Value> = Vec::new();
    for (block, _) in code.blocks.entries().filter(|(_, block)| block.leaves) {
        values.extend(execution.states_in(block).pop().map(|state| state.registers[RAX].clone()));
    }
    // Each value once; its options come after it.
    let mut next = 0;
    while let Some(value) = values.get(next).cloned() {
        next += 1;
        if let Some(number) = value.as_constant() {
            numbers.insert(number as u32);
        }
        for option in options(execution, &value) {
            if values.len() < MAX_VALUES && !values.contains(&option) {
                values.push(option);
            }
        }
    }
    numbers
}

/// Returns the values that a value can be one of.
fn options(execution: &mut Execution<'_>, value: &Value) -> Vec<Value> {
    let atom = value.as_atom().and_then(|atom| execution.atoms.get(atom));
    match atom.cloned() {
        Some(Atom::ZeroExtended { bits: 32, of }) => vec![of],
        Some(Atom::Merged { options, .. }) => options,
        Some(Atom::Select { then, otherwise, .. }) => vec![then, otherwise],
        Some(Atom::Opaque { address, index }) => at_block(execution, address, index),
        _ => Vec::new(),
    }
}

/// Returns what a register holds on each path to the block at `address`; nothing if no block begins there.
fn at_block(execution: &mut Execution<'_>, address: FileAddress, register: u32) -> Vec<Value> {
    let code = execution.code;
    let mut blocks = code.blocks.entries();
    let Some((_, block)) = blocks.find(|(_, block)| block.address() == address) else {
        return Vec::new();
    };
    let register = usize::try_from(register).unwrap_or(usize::MAX);
    let predecessors: BTreeSet<BlockId> = block.predecessors.iter().copied().collect();
    let ends = predecessors.into_iter().filter_map(|from| execution.states_in(from).pop());
    ends.filter_map(|state| state.registers.get(register).cloned()).collect()
}
