//! The static table of configuration directives (`standardConfig` entries in config.c), which gives
//! the addresses of the variables that directives set.

use std::collections::BTreeMap;

use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::item::Member;

use super::certain::{MemberError, only};

/// Distances between the name pointer and the data pointer of a configuration directive, bytes.
const CONFIG_STRIDES: [u64; 2] = [56, 64];
/// Directives whose variables are members of `server`, and those members.
const DIRECTIVES: [(&str, Member); 4] = [
    ("maxmemory", Member::Maxmemory),
    ("port", Member::Port),
    ("maxclients", Member::Maxclients),
    ("maxmemory-policy", Member::MaxmemoryPolicy),
];

/// Addresses that the configuration table gives.
pub type ConfigTable = BTreeMap<Member, FileAddress>;

/// Finds the configuration table. Fails where it is missing or ambiguous.
pub fn config_table(image: &Image<'_>) -> Result<ConfigTable, MemberError> {
    let tables: Vec<ConfigTable> = CONFIG_STRIDES
        .iter()
        .filter_map(|stride| {
            DIRECTIVES
                .iter()
                .map(|(directive, member)| {
                    Some((*member, directive_data(image, directive, *stride)?))
                })
                .collect()
        })
        .collect();
    match tables.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(MemberError::unknown(
            "no table of configuration directives with maxmemory, port, maxclients and maxmemory-policy",
        )),
        _ => Err(MemberError::unknown(
            "more than one table of configuration directives",
        )),
    }
}

/// Returns the one address that the entries called `directive` point to, `stride` bytes after their name.
fn directive_data(image: &Image<'_>, directive: &str, stride: u64) -> Option<FileAddress> {
    let found: Vec<FileAddress> = image
        .find_string(directive)
        .into_iter()
        .flat_map(|name| image.pointers_to(name))
        .filter_map(|at| image.pointer_at(at.checked_add(stride)?))
        .filter(|data| image.is_writable(*data))
        .collect();
    only(found)
}
