//! What DWARF says about functions, variables and types.
//!
//! `units` → `globals` (one pass over the top level of the units, and members by offset) → `variables` (those of one
//! function, and where they are).
//!
//! Deliberately absent: line numbers, type units (`-fdebug-types-section`), split DWARF (`.dwo`) and supplementary
//! files (`.gnu_debugaltlink`): what only those say stays unknown.

mod globals;
mod units;
mod variables;

pub use self::globals::{Asked, DebugFunction, Global, Globals};
pub use self::units::{DwarfError, EntryId, Sections, Units};
pub use self::variables::{Base, LocatedAt, Location, RegisterSum, VariableLocations, Variables, variables};
