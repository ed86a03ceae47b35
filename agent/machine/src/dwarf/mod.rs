//! What DWARF says about functions, variables and types.
//!
//! `sections` → `units` → `globals` (one pass over the top level of the units) → `types` (members, by offset) and
//! `variables` (those of one function, by `location`). Entries say much only through others: `references`.
//!
//! Deliberately absent: line numbers, type units (`-fdebug-types-section`), split DWARF (`.dwo`) and supplementary
//! files (`.gnu_debugaltlink`): what only those say stays unknown.

mod globals;
mod sections;
mod units;
mod variables;

pub use self::globals::{Asked, Function, Global, Globals};
pub use self::sections::{DwarfError, Sections};
pub use self::units::{EntryId, Units};
pub use self::variables::{Base, LocatedAt, Location, Sum, VariableLocations, Variables, variables};
