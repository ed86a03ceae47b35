//! What DWARF says of the eviction function, its variables, and `server`: the second method of probe
//! planning, independent of the data flow.
//!
//! [`sections`] → [`units`] → [`globals`] (one pass over the top level of the units) →
//! [`server`] (members, by offset) and [`variables`] (the goal variables, by [`location`]). Entries
//! say much only through others: [`references`].
//!
//! Deliberately absent: line numbers, type units (`-fdebug-types-section`), split DWARF (`.dwo`) and
//! supplementary files (`.gnu_debugaltlink`): what only those would tell is not known.

mod globals;
mod location;
mod references;
mod sections;
mod server;
mod units;
mod variables;

use crate::elf::address::FileAddress;
use globals::Globals;
use sections::Sections;
use units::Units;

pub use globals::{Asked, Function};
pub use location::{Base, Location, Sum};
pub use sections::DwarfError;
pub use server::Server;
pub use variables::{GoalVariables, VariableLocations};

/// What DWARF says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// The eviction function; none where there are several that it could be.
    pub eviction_function: Option<Function>,
    pub variables: GoalVariables,
    pub server: Option<Server>,
    /// Address of the allocator's counter, where it is one number.
    pub counter: Option<FileAddress>,
}

/// Reads the debug information in the ELF file whose whole content is `data`; `None` where it has
/// none. `eviction` says which function is the eviction function. Fails where the sections cannot be
/// read, or are larger than any server's. What is wrong inside them only makes less known.
pub fn read(data: &[u8], eviction: Asked<'_>) -> Result<Option<DebugInfo>, DwarfError> {
    let Some(sections) = Sections::read(data)? else {
        return Ok(None);
    };
    let units = Units::read(sections.dwarf())?;
    let globals = Globals::find(&units, eviction)?;
    let named = |name: &&str| -> Vec<Function> {
        let functions = globals.functions.iter();
        functions.filter(|own| own.name == *name).copied().collect()
    };
    let candidates = (eviction.names.iter().map(named))
        .find(|found| !found.is_empty())
        .unwrap_or_default();
    let at_entry = candidates
        .iter()
        .find(|own| Some(own.address) == eviction.entry);
    let function = match (at_entry, candidates.as_slice()) {
        (Some(function), _) | (None, [function]) => Some(*function),
        _ => None,
    };
    let variables = match function {
        Some(function) => variables::find(&units, function.id)?,
        None => GoalVariables::default(),
    };
    Ok(Some(DebugInfo {
        eviction_function: function,
        variables,
        server: server::server(&units, &globals),
        counter: server::counter(&units, &globals),
    }))
}

#[cfg(test)]
mod tests;
