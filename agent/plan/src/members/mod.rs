//! The members of `struct redisServer server`, and the allocator's counters.
//!
//! Three sources, in this order of trust, each cross-checked with the others: the static table of
//! configuration directives (`standardConfig` entries in config.c), which gives addresses; the data
//! flow of what the eviction loop counts and of what INFO and MEMORY STATS print; and the table of
//! known layouts, which counts only where all else that is known agrees with it. [`Members::agree`]
//! compares what was found with another source, the debug information.

mod client_memory;
mod config_table;
mod counters;
mod error;
mod evicted_keys;
mod find;
mod info;
mod layouts;
mod server;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::item::Member;

pub use config_table::{ConfigTable, config_table};
pub use counters::{Counters, counters_behind};
pub use error::MemberError;
pub use evicted_keys::counted_in_loops;
pub use find::{Evidence, MemberPlan, Members};

/// The members that no configuration directive sets, in the order of the plan.
const COUNTERS: [Member; 4] = [
    Member::StatNumcommands,
    Member::StatEvictedkeys,
    Member::StatExpiredkeys,
    Member::StatClientsTypeMemory,
];

/// Addresses of members that the data flow gives.
type DataFlow = BTreeMap<Member, FileAddress>;

/// Returns what the code says of the members in [`COUNTERS`]: the eviction loop, which adds 1 to the
/// addresses in `counted`, what INFO prints, and the report on memory. Only addresses in `server`
/// count.
///
/// # Errors
///
/// What each said, where two of them differ.
fn by_data_flow(
    image: &Image<'_>,
    counted: &[FileAddress],
    server: Range<FileAddress>,
) -> Result<DataFlow, MemberError> {
    let mut found: DataFlow = info::shown_members(image).into_iter().collect();
    if let Some(address) = client_memory::client_memory(image) {
        found.insert(Member::StatClientsTypeMemory, address);
    }
    found.retain(|_, address| server.contains(address));
    let Some(counted) = only_in(server, counted) else {
        return Ok(found);
    };
    match found.insert(Member::StatEvictedkeys, counted) {
        Some(shown) if shown != counted => Err(MemberError::EvictedKeys { counted, shown }),
        _ => Ok(found),
    }
}

/// Returns the one address, which may be there several times; `None` where there are different ones.
fn only(mut found: Vec<FileAddress>) -> Option<FileAddress> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// Returns the one address in `range`.
fn only_in(range: Range<FileAddress>, addresses: &[FileAddress]) -> Option<FileAddress> {
    let inside = addresses.iter().filter(|address| range.contains(address));
    only(inside.copied().collect())
}
