//! The global `server` and the allocator's counter.

use std::collections::BTreeMap;

use evictscope_machine::dwarf::{Global, Globals, Units};
use evictscope_machine::elf::FileAddress;

use crate::members::Member;

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
    Some(Server {
        address: global.address,
        members: members.collect(),
    })
}

/// Finds the address of the only variable called `used_memory`, if that is an 8-byte number.
pub fn counter(units: &Units<'_>, globals: &Globals) -> Option<FileAddress> {
    let mut counters = globals.variables.iter().filter(|own| own.name == COUNTER);
    let only = counters.next()?;
    (counters.next().is_none() && units.is_number(only.of, 8)).then_some(only.address)
}
