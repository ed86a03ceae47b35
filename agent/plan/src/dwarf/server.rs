//! The type of `server` and of the allocator's counter.

use std::collections::BTreeMap;

use gimli::constants;

use super::globals::{Global, Globals, number};
use super::units::{Entry, EntryId, Units};
use crate::elf::address::FileAddress;
use crate::item::Member;

/// What the type of `server` is called.
const TYPES: [&str; 2] = ["redisServer", "valkeyServer"];
/// How many typedefs and qualifiers are looked through.
const MAX_QUALIFIERS: usize = 8;

/// The global variable `server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub address: FileAddress,
    /// Offsets of the members that are looked for.
    pub members: BTreeMap<Member, u64>,
}

/// Finds the only variable called `server` that has the type it has in Redis.
pub fn server(units: &Units<'_>, globals: &Globals) -> Option<Server> {
    let mut servers = globals
        .servers
        .iter()
        .filter_map(|global| typed_server(units, global));
    let only = servers.next()?;
    servers.next().is_none().then_some(only)
}

fn typed_server(units: &Units<'_>, global: &Global) -> Option<Server> {
    let (id, structure) = unqualified(units, global.of)?;
    if structure.tag() != constants::DW_TAG_structure_type
        || !TYPES.contains(&units.name(id.unit, &structure)?)
    {
        return None;
    }
    let size = number(&structure, constants::DW_AT_byte_size)?;
    let (mut members, mut others) = (BTreeMap::new(), BTreeMap::new());
    let mut is_clear = true;
    units
        .walk(id, 1, |depth, child| {
            if depth != 1 || child.tag() != constants::DW_TAG_member {
                return;
            }
            let name = units.name(id.unit, child);
            let Some(name) = name else { return };
            let find = |is_it: &dyn Fn(Member) -> bool| {
                let mut wanted = Member::OF_SERVER.into_iter();
                wanted.find(|member| is_it(*member))
            };
            let (named, member) = match find(&|member| member.name() == name) {
                Some(member) => (&mut members, member),
                None => match find(&|member| member.other_name() == Some(name)) {
                    Some(member) => (&mut others, member),
                    None => return,
                },
            };
            let offset = number(child, constants::DW_AT_data_member_location);
            is_clear &= offset
                .is_some_and(|offset| offset < size && named.insert(member, offset).is_none());
        })
        .ok()?;
    if !is_clear {
        return None;
    }
    for (member, offset) in others {
        members.entry(member).or_insert(offset);
    }
    Some(Server {
        address: global.address,
        members,
    })
}

/// Finds the address of the only variable called `used_memory`, if that is a number of 8 bytes.
pub fn counter(units: &Units<'_>, globals: &Globals) -> Option<FileAddress> {
    let mut counters = globals.counters.iter().filter(|global| {
        unqualified(units, global.of).is_some_and(|(_, of)| {
            of.tag() == constants::DW_TAG_base_type
                && number(&of, constants::DW_AT_byte_size) == Some(8)
        })
    });
    let only = counters.next()?;
    (counters.next().is_none() && globals.counters.len() == 1).then_some(only.address)
}

/// Returns a type without `typedef`, `const`, `volatile` and `_Atomic`.
fn unqualified<'a>(units: &Units<'a>, mut id: EntryId) -> Option<(EntryId, Entry<'a>)> {
    for _ in 0..MAX_QUALIFIERS {
        let entry = units.entry(id)?;
        let is_qualifier = matches!(
            entry.tag(),
            constants::DW_TAG_typedef
                | constants::DW_TAG_const_type
                | constants::DW_TAG_volatile_type
                | constants::DW_TAG_atomic_type
        );
        if !is_qualifier {
            return Some((id, entry));
        }
        id = units.reference(id.unit, entry.attr_value(constants::DW_AT_type)?)?;
    }
    None
}
