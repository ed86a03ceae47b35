//! What DWARF says about the eviction function, its variables, and `server`: the second method of
//! probe planning, independent of the data flow.
//!
//! [`server`] has the members, by offset; the goal variables are locals of the eviction function.

use std::collections::BTreeMap;

use evictscope_abi::Variable;
use evictscope_machine::dwarf::{Asked, DwarfError, Function, Global, Globals, Sections, Units, Variables, variables};
use evictscope_model::{FileAddress, Member};

use crate::item::variable_name;

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
    let globals = Globals::find(&units, &VARIABLES, eviction)?;
    let function = globals.function(eviction);
    let variables = match function {
        Some(function) => variables(&units, function.id, CALCULATION, &GOAL_VARIABLES)?,
        None => Variables::default(),
    };
    Ok(Some(DebugInfo {
        eviction_function: function,
        variables,
        server: server(&units, &globals),
        counter: counter(&units, &globals),
    }))
}

/// The variables that are looked for.
pub const VARIABLES: [&str; 2] = [SERVER, COUNTER];
const SERVER: &str = "server";
const COUNTER: &str = "used_memory";
/// What the type of `server` is called.
const TYPES: [&str; 2] = ["redisServer", "valkeyServer"];

/// The global variable `server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: FileAddress,
    /// Offsets of the members that are looked for.
    pub members: BTreeMap<Member, u64>,
}

/// Finds the only variable called `server` that has the type it has in Redis.
pub fn server(units: &Units<'_>, globals: &Globals) -> Option<Server> {
    let servers = globals.variables.iter().filter(|own| own.name == SERVER);
    let mut servers = servers.filter_map(|global| typed_server(units, global));
    let only = servers.next()?;
    servers.next().is_none().then_some(only)
}

fn typed_server(units: &Units<'_>, global: &Global) -> Option<Server> {
    let is_wanted = |name: &str| {
        let mut wanted = Member::of_server();
        wanted.any(|own| own.name() == name || own.newer_name() == Some(name))
    };
    let offsets = units.members(global.of, &TYPES, is_wanted)?;
    let members = Member::of_server().filter_map(|member| {
        let offset = offsets.get(member.name());
        let offset = offset.or_else(|| offsets.get(member.newer_name()?));
        Some((member, *offset?))
    });
    Some(Server { address: global.address, members: members.collect() })
}

/// Finds the address of the only variable called `used_memory`, if that is an 8-byte number.
pub fn counter(units: &Units<'_>, globals: &Globals) -> Option<FileAddress> {
    let mut counters = globals.variables.iter().filter(|own| own.name == COUNTER);
    let only = counters.next()?;
    (counters.next().is_none() && units.is_number(only.of, 8)).then_some(only.address)
}

#[cfg(test)]
mod tests;
