//! The members of `struct redisServer server`, and the allocator's counter.
//!
//! Three sources, each cross-checked with the others: the static table of configuration directives
//! (`standardConfig` entries in config.c), which gives addresses; the data flow of the eviction
//! function; and the table of known layouts, which counts only where everything else that is known
//! agrees with exactly one layout.

mod config_table;
mod counters;
mod evicted_keys;
mod layouts;

pub use config_table::{ConfigTable, config_table};
pub use counters::{counters_behind, counters_returned_by};
pub use evicted_keys::incremented_member;
pub use layouts::{KnownLayout, Layout, ServerFacts, known_layout, layouts};

/// The one address of which there may be several mentions; none where there are different ones.
fn only(mut found: Vec<u64>) -> Option<u64> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}
