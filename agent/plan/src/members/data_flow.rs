//! What the data flow says of the members.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::item::Member;

use super::certain::MemberError;
use super::certain::only_in;
use super::client_memory;
use super::info;

/// The members that no configuration directive sets, in the order of the plan.
pub const COUNTERS: [Member; 4] = [
    Member::StatNumcommands,
    Member::StatEvictedkeys,
    Member::StatExpiredkeys,
    Member::StatClientsTypeMemory,
];

/// Addresses of members that the data flow gives.
pub type DataFlow = BTreeMap<Member, FileAddress>;

/// Returns what the code says of the members in [`COUNTERS`]: the eviction loop, which adds 1 to the
/// addresses in `counted`, what INFO prints, and the report on memory. Only addresses in `server`
/// count.
///
/// # Errors
///
/// What each said, where two of them differ.
pub fn by_data_flow(
    image: &Image<'_>,
    counted: &[FileAddress],
    server: Range<FileAddress>,
) -> Result<DataFlow, MemberError> {
    let mut found: DataFlow = info::shown_members(image).into_iter().collect();
    if let Some(address) = client_memory::client_memory(image) {
        found.insert(Member::StatClientsTypeMemory, address);
    }
    found.retain(|_, address| server.contains(address));
    let Some(counted) = only_in(server, counted) else {
        return Ok(found);
    };
    match found.insert(Member::StatEvictedkeys, counted) {
        Some(shown) if shown != counted => Err(MemberError::Contradiction(format!(
            "the eviction loop counts at {counted:#x}, but INFO shows as evicted_keys what is at {shown:#x}"
        ))),
        _ => Ok(found),
    }
}
