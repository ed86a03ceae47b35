//! What DWARF says of functions, variables and types.
//!
//! [`sections`] → [`units`] → [`globals`] (one pass over the top level of the units) → `types` (members, by offset)
//! and [`variables`] (those of one function, by [`location`]). Entries say much only through others: `references`.
//!
//! Deliberately absent: line numbers, type units (`-fdebug-types-section`), split DWARF (`.dwo`) and
//! supplementary files (`.gnu_debugaltlink`): what only those would tell is not known.

pub mod globals;
pub mod location;
mod references;
pub mod sections;
mod types;
pub mod units;
pub mod variables;
