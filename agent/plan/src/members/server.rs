//! Finds the global `server` if it has no symbol.
//!
//! The table of configuration directives gives the addresses of four members or more. A known
//! layout agrees if all of them, less their offsets, give the same address. The layouts of some
//! releases agree in all that is read and differ in what comes before it; then the members'
//! addresses are certain and only their offsets are not.

use std::ops::Range;

use evictscope_machine::elf::Image;
use evictscope_model::{FileAddress, Member};

use super::certain::MemberError;
use super::certain::only_in;
use super::config_table::ConfigTable;
use super::layouts::{Layout, layouts};
use crate::names::Identity;

/// More bytes than `server` has.
const LARGEST: u64 = 64 << 10;

/// The global `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Virtual address, as in the file.
    pub address: FileAddress,
    /// Size in bytes; 0 if the file does not say.
    pub size: u64,
    /// Whether it is certain where it begins, and so what offsets members have.
    pub is_exact: bool,
}

impl Server {
    /// Returns the addresses of its bytes.
    pub fn range(&self) -> Range<FileAddress> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// Returns the addresses that can belong to `server`, wherever in it the members set by directives are.
pub fn around(config: &ConfigTable) -> Range<FileAddress> {
    let (lowest, highest) = (config.values().min(), config.values().max());
    let (Some(lowest), Some(highest)) = (lowest, highest) else {
        return Range::default();
    };
    let begin = lowest.moved_back(LARGEST).unwrap_or_default();
    begin..highest.saturating_add(LARGEST)
}

/// A layout, and where `server` would begin with it.
struct Candidate {
    release: String,
    layout: Layout,
    address: FileAddress,
}

impl Candidate {
    fn of(release: String, layout: Layout, config: &ConfigTable) -> Option<Self> {
        // A table has the first four; if it lacks any of the others, that says nothing.
        let mut addresses = config.iter().map(|(member, found)| found.moved_back(layout.offset(*member)?));
        let address = addresses.next()??;
        addresses.all(|other| other == Some(address)).then_some(Self { release, layout, address })
    }

    fn is_in_writable_data(&self, image: &Image<'_>) -> bool {
        let last = self.address.checked_add(self.layout.sizeof.saturating_sub(1));
        image.is_writable(self.address) && last.is_some_and(|last| image.is_writable(last))
    }

    /// Returns the addresses of all members read by the layout.
    fn members(&self) -> impl Iterator<Item = Option<FileAddress>> {
        Member::counted().map(|member| self.address_of(member))
    }

    fn address_of(&self, member: Member) -> Option<FileAddress> {
        Some(self.address.wrapping_add(self.layout.offset(member)?))
    }
}

/// Deduces it from the configuration table. `counted` has the addresses that the eviction loop adds 1
/// to; one of them is that of `stat_evictedkeys`. Fails with the reason if it is not certain.
pub fn server(
    image: &Image<'_>,
    config: &ConfigTable,
    identity: &Identity,
    counted: &[FileAddress],
) -> Result<Server, MemberError> {
    let mut candidates: Vec<Candidate> = layouts()?
        .into_iter()
        .filter_map(|(release, layout)| Candidate::of(release, layout, config))
        .filter(|candidate| candidate.is_in_writable_data(image))
        .collect();
    let begin = candidates.iter().map(|candidate| candidate.address).min();
    let end = candidates.iter().map(|candidate| candidate.address.saturating_add(candidate.layout.sizeof)).max();
    if let (Some(begin), Some(end)) = (begin, end)
        && let Some(evicted_keys) = only_in(begin..end, counted)
    {
        candidates.retain(|candidate| candidate.address_of(Member::StatEvictedkeys) == Some(evicted_keys));
    }
    narrow_to_release(&mut candidates, identity);
    let Some(first) = candidates.first() else {
        return Err(MemberError::unknown(
            "no global variable called server, and no known layout of struct redisServer agrees with the configuration table",
        ));
    };
    if let Some(other) = candidates.iter().find(|other| !other.members().eq(first.members())) {
        return Err(MemberError::Unknown(format!(
            "no global variable called server, and the layouts of {} and {} both agree with the configuration table",
            first.release, other.release
        )));
    }
    Ok(Server {
        address: first.address,
        size: first.layout.sizeof,
        is_exact: candidates.iter().all(|other| other.address == first.address),
    })
}

/// Keeps only the layout of the very release that the executable says it is, if that is among the candidates.
fn narrow_to_release(candidates: &mut Vec<Candidate>, identity: &Identity) {
    let (Some(product), Some(version)) = (identity.product, &identity.version) else {
        return;
    };
    let release = format!("{product} {version}");
    if candidates.iter().any(|candidate| candidate.release == release) {
        candidates.retain(|candidate| candidate.release == release);
    }
}

#[cfg(test)]
mod tests;
