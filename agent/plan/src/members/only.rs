//! The one address that several findings agree on.

use std::ops::Range;

use crate::elf::address::FileAddress;

/// Returns the one address, which may be there several times; `None` where there are different ones.
pub fn only(mut found: Vec<FileAddress>) -> Option<FileAddress> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
    }
}

/// Returns the one address in `range`.
pub fn only_in(range: Range<FileAddress>, addresses: &[FileAddress]) -> Option<FileAddress> {
    let inside = addresses.iter().filter(|address| range.contains(address));
    only(inside.copied().collect())
}
