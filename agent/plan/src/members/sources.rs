//! Where single sources say that members are: the static table of configuration directives (`standardConfig` entries in
//! config.c), which gives the addresses of the variables that directives set, and the data flow: what the eviction loop
//! counts, what INFO prints, and what `getMemoryOverheadData()` adds up. What is not certain has a reason.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

use evictscope_machine::code::FunctionCode;
use evictscope_machine::elf::Image;
use evictscope_machine::flow::Execution;
use evictscope_machine::flow::interpreter::Halt;
use evictscope_machine::ir::Instruction;
use evictscope_model::{FileAddress, Member};

use super::info::{Info, only};

/// Why a member of `server` or the allocator's counter is not known. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// Nothing leads to it, or what does leads to several places.
    #[error("{0}")]
    Unknown(String),
    /// Two sources name different places.
    #[error("{0}")]
    Contradiction(String),
    /// The function that returns the counter could not be run.
    #[error("zmalloc_used_memory() is not understood: {0}")]
    Allocator(#[from] Halt),
}

impl MemberError {
    /// Makes the error that says why a member is unknown.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown(why.into())
    }
}

/// Returns the only address in `range`.
pub fn only_in(range: Range<FileAddress>, addresses: &[FileAddress]) -> Option<FileAddress> {
    only(addresses.iter().copied().filter(|address| range.contains(address)))
}

/// Distances between the name pointer and the data pointer of a configuration directive, bytes.
const CONFIG_STRIDES: [u64; 2] = [56, 64];

/// Addresses that the configuration table gives.
pub type ConfigTable = BTreeMap<Member, FileAddress>;

/// Finds the configuration table. Fails if it is missing or ambiguous.
pub fn config_table(image: &Image<'_>) -> Result<ConfigTable, MemberError> {
    let table = |stride| {
        let data = |(directive, member): (_, Member)| {
            Some((member, directive_data(image, directive, stride)?.wrapping_add(member.line().behind)))
        };
        let mut table = Member::set_by_directives(true).map(data).collect::<Option<ConfigTable>>()?;
        table.extend(Member::set_by_directives(false).filter_map(data));
        Some(table)
    };
    let tables: Vec<ConfigTable> = CONFIG_STRIDES.into_iter().filter_map(table).collect();
    match tables.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(MemberError::unknown(
            "no table of configuration directives with maxmemory, port, maxclients and maxmemory-policy",
        )),
        _ => Err(MemberError::unknown("more than one table of configuration directives")),
    }
}

/// Returns the directives that this version has but about which the table is not certain, and their members.
pub fn absent<'a>(image: &'a Image<'_>, config: &'a ConfigTable) -> impl Iterator<Item = (&'static str, Member)> + 'a {
    let further = Member::set_by_directives(false);
    further.filter(|(directive, member)| !config.contains_key(member) && !image.find_string(directive).is_empty())
}

/// Returns the only address that the entries called `directive` point to, `stride` bytes after their name.
fn directive_data(image: &Image<'_>, directive: &str, stride: u64) -> Option<FileAddress> {
    let entries = image.find_string(directive).into_iter().flat_map(|name| image.pointers_to(name));
    let pointed_to = entries.filter_map(|at| image.pointer_at(at.checked_add(stride)?));
    only(pointed_to.filter(|data| image.is_writable(*data)))
}

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
    if let Some(address) = client_memory(image, callees) {
        found.insert(Member::StatClientsTypeMemory, address);
    }
    found.retain(|_, address| range.contains(address));
    let Some(counted) = counted else { return Ok(found) };
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
fn client_memory(image: &Image<'_>, called: BTreeSet<FileAddress>) -> Option<FileAddress> {
    let named = image.symbols.function(REPORTING_FUNCTION);
    let functions = named.map_or(called, |symbol| BTreeSet::from([symbol.address]));
    let found = functions.into_iter().take(MAX_CALLED).filter_map(|function| {
        let code = FunctionCode::decode(image, function).ok()?;
        mentions_what_is_added(&code).then(|| added_up(&code))
    });
    only(found.flatten())
}

/// Returns whether a function can add up what lies at the distances of [`ADDED_UP`].
fn mentions_what_is_added(code: &FunctionCode) -> bool {
    let instructions = code.blocks.iter().flat_map(|block| &block.instructions);
    let accesses = instructions.flat_map(Instruction::accesses);
    let loaded: HashSet<FileAddress> = accesses.map(|access| FileAddress::new(access.address.displacement)).collect();
    loaded.iter().any(|first| ADDED_UP.iter().all(|distance| loaded.contains(&first.wrapping_add(*distance))))
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
