//! What the data flow says about the members: what the eviction loop counts, what INFO prints, and
//! what `getMemoryOverheadData()` adds up.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use evictscope_machine::code::FunctionCode;
use evictscope_machine::code::instruction::word_displacement;
use evictscope_machine::elf::Image;
use evictscope_machine::flow::Execution;
use evictscope_model::{FileAddress, Member};

use super::certain::{MemberError, only};
use super::info::Info;

/// The function that reports what memory is used for (`MEMORY STATS`).
const REPORTING_FUNCTION: &str = "getMemoryOverheadData";
/// What it adds up as the memory of normal clients: the elements for normal clients, subscribers and
/// the primary, by their distance from the first in bytes. It keeps the element for replicas separate.
const ADDED_UP: [u64; 3] = [0, 16, 24];
/// The most functions called by INFO that are looked at.
const MAX_CALLED: usize = 256;

/// Addresses of members that the data flow gives.
pub type DataFlow = BTreeMap<Member, FileAddress>;

/// Returns what the code says about the members that no directive sets: what `info` prints, the report on
/// memory, and `counted`, the only address in `server` that the eviction loop adds 1 to. Only addresses in
/// `range`, where `server` is, count. Fails if two of them differ.
pub fn by_data_flow(
    image: &Image<'_>,
    info: Info,
    counted: Option<FileAddress>,
    range: Range<FileAddress>,
) -> Result<DataFlow, MemberError> {
    let Info { shown: mut found, callees, .. } = info;
    if let Some(address) = client_memory(image, &callees) {
        found.insert(Member::StatClientsTypeMemory, address);
    }
    found.retain(|_, address| range.contains(address));
    let Some(counted) = counted else {
        return Ok(found);
    };
    match found.insert(Member::StatEvictedkeys, counted) {
        Some(shown) if shown != counted => Err(MemberError::Contradiction(format!(
            "the eviction loop counts at {counted:#x}, but INFO shows as evicted_keys what is at {shown:#x}"
        ))),
        _ => Ok(found),
    }
}

/// Returns the address of `stat_clients_type_memory`: in the function that reports on memory, a register
/// holds the sum of three 8-byte globals at the distances of [`ADDED_UP`], in one place only. If no
/// function has that name, it is one of `called`, the functions that INFO calls.
fn client_memory(image: &Image<'_>, called: &[FileAddress]) -> Option<FileAddress> {
    let named = image.function(REPORTING_FUNCTION);
    let functions = match &named {
        Some(symbol) => std::slice::from_ref(&symbol.address),
        None => called.get(..MAX_CALLED).unwrap_or(called),
    };
    let found = functions.iter().filter_map(|function| {
        let code = FunctionCode::decode(image, *function).ok()?;
        mentions_what_is_added(&code).then(|| added_up(&code))
    });
    only(found.flatten().collect())
}

/// Returns whether a function can add up what lies at the distances of [`ADDED_UP`].
fn mentions_what_is_added(code: &FunctionCode) -> bool {
    let instructions = code.blocks.iter().flat_map(|block| &block.instructions);
    let loaded: HashSet<FileAddress> = instructions.filter_map(word_displacement).collect();
    loaded.iter().any(|first| {
        let mut all = ADDED_UP.iter();
        all.all(|distance| loaded.contains(&first.wrapping_add(*distance)))
    })
}

/// Returns the first of the three globals, wherever a register holds their sum.
fn added_up(code: &FunctionCode) -> Vec<FileAddress> {
    let mut execution = Execution::run(code);
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
    found
}
