//! The members of `struct redisServer server`, and the allocator's counters.
//!
//! [`Member`](evictscope_model::Member) says what they are. Three sources say where they are, in this order of trust,
//! each cross-checked with the others: the static table of configuration directives (`standardConfig` entries in
//! config.c), which gives addresses; the data flow of what the eviction loop counts and of what INFO and MEMORY STATS
//! print; and the table of known layouts, which counts only if all else that is known agrees with it. The first two
//! need neither a symbol nor a known layout. [`Members::agree`] compares what was found with another source, the debug
//! information.

mod counters;
mod find;
mod info;
mod layouts;
mod server;
mod sources;

pub use counters::{Counters, counters_behind};
pub use find::{Evidence, MemberPlan, Members};
pub use info::{Info, info};
pub use sources::{ConfigTable, MemberError, config_table};
