//! The static table of configuration directives (`standardConfig` entries in config.c), which gives
//! the addresses of the variables that directives set.

use std::collections::BTreeMap;

use evictscope_machine::elf::Image;
use evictscope_model::{FileAddress, Member};

use super::certain::{MemberError, only};

/// Distances between the name pointer and the data pointer of a configuration directive, bytes.
const CONFIG_STRIDES: [u64; 2] = [56, 64];

/// Addresses that the configuration table gives.
pub type ConfigTable = BTreeMap<Member, FileAddress>;

/// Finds the configuration table. Fails if it is missing or ambiguous.
pub fn config_table(image: &Image<'_>) -> Result<ConfigTable, MemberError> {
    let tables: Vec<ConfigTable> = CONFIG_STRIDES
        .iter()
        .filter_map(|stride| {
            let data = |(directive, member)| Some((member, directive_data(image, directive, *stride)?));
            let table: Option<ConfigTable> = Member::set_by_directives(true).map(data).collect();
            let mut table = table?;
            table.extend(Member::set_by_directives(false).filter_map(data));
            Some(table)
        })
        .collect();
    match tables.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(MemberError::unknown(
            "no table of configuration directives with maxmemory, port, maxclients and maxmemory-policy",
        )),
        _ => Err(MemberError::unknown("more than one table of configuration directives")),
    }
}

/// Returns the directives that this version has but about which the table is not certain, and their members.
pub fn absent<'a>(image: &'a Image<'_>, config: &'a ConfigTable) -> impl Iterator<Item = (&'static str, Member)> + 'a {
    let further = Member::set_by_directives(false);
    further.filter(|(directive, member)| !config.contains_key(member) && !image.find_string(directive).is_empty())
}

/// Returns the only address that the entries called `directive` point to, `stride` bytes after their name.
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
