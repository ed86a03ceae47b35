//! `stat_clients_type_memory` by data flow: `getMemoryOverheadData()` adds up three of its elements.

use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::flow::execution::Execution;

use super::certain::only;

/// The function that reports what memory is used for (`MEMORY STATS`).
const REPORTING_FUNCTION: &str = "getMemoryOverheadData";
/// What it adds up to the memory of normal clients: the elements for normal clients, subscribers
/// and the primary, by their distance from the first in bytes. It keeps the one for replicas apart.
const ADDED_UP: [u64; 3] = [0, 16, 24];

/// Returns the address of `stat_clients_type_memory`: a register holds the sum of three 8-byte
/// globals at the distances of [`ADDED_UP`], in one place only.
pub fn client_memory(image: &Image<'_>) -> Option<FileAddress> {
    let function = image.function(REPORTING_FUNCTION)?;
    let code = FunctionCode::decode(image, function.address).ok()?;
    let mut execution = Execution::run(&code);
    let mut found = Vec::new();
    for block in code.blocks.ids() {
        for state in execution.states_in(block) {
            let sums = state.registers.iter().filter_map(|value| {
                let mut loaded = execution.atoms.as_sum_of_globals(value)?;
                loaded.sort_unstable();
                let first = *loaded.first()?;
                let expected = ADDED_UP.map(|distance| first.wrapping_add(distance));
                (loaded == expected).then_some(first)
            });
            found.extend(sums);
        }
    }
    only(found)
}
