//! What DWARF says about functions, variables and types.
//!
//! `sections` → `units` → `globals` (one pass over the top level of the units) → `types` (members, by offset) and
//! `variables` (those of one function, by `location`). Entries say much only through others: `references`.
//!
//! Deliberately absent: line numbers, type units (`-fdebug-types-section`), split DWARF (`.dwo`) and supplementary
//! files (`.gnu_debugaltlink`): what only those say stays unknown.

mod globals;
mod location;
mod references;
mod sections;
mod types;
mod units;
mod variables;

pub use globals::{Asked, Function, Global, Globals};
pub use location::{Base, LocatedAt, Location, Sum};
pub use sections::{DwarfError, Sections};
pub use units::{EntryId, Units};
pub use variables::{VariableLocations, Variables, variables};
