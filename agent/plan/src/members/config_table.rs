//! The static table of configuration directives (`standardConfig` entries in config.c), which gives
//! the addresses of the variables that directives set.

use std::collections::BTreeMap;

use super::only;
use crate::elf::image::Image;

/// Distances between the name pointer and the data pointer of a configuration directive, bytes.
const CONFIG_STRIDES: [u64; 2] = [56, 64];
/// Directives whose variables are members of `server`, and the names of those members.
const DIRECTIVES: [(&str, &str); 4] = [
    ("maxmemory", "maxmemory"),
    ("port", "port"),
    ("maxclients", "maxclients"),
    ("maxmemory-policy", "maxmemory_policy"),
];

/// Addresses that the configuration table gives, by member name.
pub type ConfigTable = BTreeMap<&'static str, u64>;

/// Finds the configuration table.
///
/// # Errors
///
/// What is missing or ambiguous, in words.
pub fn config_table(image: &Image<'_>) -> Result<ConfigTable, String> {
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
        [] => Err("no table of configuration directives with maxmemory, port, maxclients and maxmemory-policy".to_owned()),
        _ => Err("more than one table of configuration directives".to_owned()),
    }
}

/// The one address that the entries called `directive` point to, `stride` bytes after their name.
fn directive_data(image: &Image<'_>, directive: &str, stride: u64) -> Option<u64> {
    let found: Vec<u64> = image
        .find_string(directive)
        .into_iter()
        .flat_map(|name| image.pointers_to(name))
        .filter_map(|at| image.pointer_at(at.checked_add(stride)?))
        .filter(|data| image.is_writable(*data))
        .collect();
    only(found)
}
