//! The allocator's counter (`used_memory` in zmalloc.c), by data flow.

use crate::binary::code::FunctionCode;
use crate::binary::execute::Execution;
use crate::binary::image::Image;
use crate::binary::value::{Atom, Value};

/// The allocator's counter behind `mem_reported`: the global that it was loaded from, or that the
/// function which returned it loads.
///
/// # Errors
///
/// Why it is not one global, in words.
pub fn counter_behind(
    image: &Image<'_>,
    mem_reported: &Value,
    execution: &Execution<'_>,
) -> Result<u64, String> {
    if let Some(address) = execution.atoms.as_global(mem_reported) {
        return Ok(address);
    }
    let atom = mem_reported.as_atom();
    match atom.and_then(|atom| execution.atoms.get(atom)) {
        Some(Atom::Call {
            callee: Some(callee),
            ..
        }) => counter_returned_by(image, *callee),
        _ => Err("mem_reported is neither a global nor the result of a call".to_owned()),
    }
}

/// The one global that the function at `address`, `zmalloc_used_memory()`, loads and returns.
///
/// # Errors
///
/// Why it is not one global, in words.
pub fn counter_returned_by(image: &Image<'_>, address: u64) -> Result<u64, String> {
    let code = FunctionCode::decode(image, address).map_err(|error| error.to_string())?;
    let mut execution = Execution::run(&code);
    let mut counters = Vec::new();
    for block in (0..code.blocks.len()).filter(|index| code.blocks[*index].leaves) {
        let state = execution.states_in(block).pop();
        counters.push(state.and_then(|state| execution.atoms.as_global(&state.registers[0])));
    }
    counters.dedup();
    match counters.as_slice() {
        [Some(only)] => Ok(*only),
        _ => Err("zmalloc_used_memory() does more than load one counter".to_owned()),
    }
}
