//! What DWARF says about the eviction function, its variables, and `server`: the second method of
//! probe planning, independent of the data flow.
//!
//! [`server`] has the members, by offset; the goal variables are locals of the eviction function.

mod server;

use evictscope_abi::Variable;
use evictscope_machine::dwarf::{
    Asked, DwarfError, Function, Globals, Sections, Units, Variables, variables,
};
use evictscope_machine::elf::FileAddress;

use crate::item::variable_name;

pub use server::Server;

/// Computes the goal. Its first copy sets the goal; those inlined further down only check whether enough was freed.
const CALCULATION: &str = "getMaxmemoryState";
/// The goal variables that are locals. The function itself has those that a call of the calculation fills in.
const GOAL_VARIABLES: [&str; 4] = [
    variable_name(Variable::MemReported),
    variable_name(Variable::Overhead),
    variable_name(Variable::MemUsed),
    variable_name(Variable::MemTofree),
];

/// What DWARF says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// The eviction function; `None` if it could be any of several.
    pub eviction_function: Option<Function>,
    /// The goal variables of that function, and of the copy of the calculation in it.
    pub variables: Variables,
    pub server: Option<Server>,
    /// Address of the allocator's counter, if it is one number.
    pub counter: Option<FileAddress>,
}

/// Reads the debug information in the ELF file whose whole content is `data`; `None` if it has none.
/// `eviction` says which function is the eviction function. Fails if the sections cannot be read, or
/// are larger than any server's. Errors inside them only make less known.
pub fn read(data: &[u8], eviction: Asked<'_>) -> Result<Option<DebugInfo>, DwarfError> {
    let Some(sections) = Sections::read(data)? else {
        return Ok(None);
    };
    let units = Units::read(sections.dwarf())?;
    let globals = Globals::find(&units, &server::VARIABLES, eviction)?;
    let function = globals.function(eviction);
    let variables = match function {
        Some(function) => variables(&units, function.id, CALCULATION, &GOAL_VARIABLES)?,
        None => Variables::default(),
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
