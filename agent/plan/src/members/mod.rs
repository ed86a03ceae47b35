//! The members of `struct redisServer server`, and the allocator's counters.
//!
//! Three sources, in this order of trust, each cross-checked with the others: the static table of
//! configuration directives (`standardConfig` entries in config.c), which gives addresses; the data
//! flow, of what the eviction loop counts and of what INFO and MEMORY STATS print; and the table of
//! known layouts, which counts only where everything else that is known agrees with it.

mod client_memory;
mod config_table;
mod counters;
mod evicted_keys;
mod info;
mod layouts;
mod server;

use std::collections::BTreeMap;

use crate::elf::image::Image;
use crate::flow::execution::Execution;

pub use config_table::{ConfigTable, config_table};
pub use counters::{counters_behind, counters_returned_by};
pub use evicted_keys::incremented_member;
pub use layouts::{KnownLayout, Layout, NoLayout, ServerFacts, known_layout, layouts};
pub use server::{Server, server};

/// The members that no configuration directive sets, in the order of the plan.
pub const COUNTERS: [&str; 4] = [
    "stat_numcommands",
    "stat_evictedkeys",
    "stat_expiredkeys",
    "stat_clients_type_memory",
];

/// Addresses of members that the data flow gives, by member name.
pub type DataFlow = BTreeMap<&'static str, u64>;

/// What the code says of the members in [`COUNTERS`]: the eviction loop, what INFO prints, and the
/// report on memory. Only addresses in `server` count.
///
/// # Errors
///
/// What each said, where two of them differ.
pub fn by_data_flow(
    image: &Image<'_>,
    eviction: &mut Execution<'_>,
    server: std::ops::Range<u64>,
) -> Result<DataFlow, String> {
    let mut found: DataFlow = info::shown_members(image).into_iter().collect();
    if let Some(address) = client_memory::client_memory(image) {
        found.insert("stat_clients_type_memory", address);
    }
    found.retain(|_, address| server.contains(address));
    let Some(counted) = evicted_keys::incremented_member(eviction, server) else {
        return Ok(found);
    };
    match found.insert("stat_evictedkeys", counted) {
        Some(shown) if shown != counted => Err(format!(
            "the eviction loop counts at {counted:#x}, but INFO shows as evicted_keys what is at {shown:#x}"
        )),
        _ => Ok(found),
    }
}

/// The one address of which there may be several mentions; none where there are different ones.
fn only(mut found: Vec<u64>) -> Option<u64> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}
