//! Where the global `server` is, where it has no symbol.
//!
//! The table of configuration directives gives the addresses of four members. A known layout agrees
//! where all four, less their offsets, give the same address. The layouts of some releases agree in
//! all that is read and differ in what lies before it; then the members' addresses are certain and
//! only their offsets are not.

use std::ops::Range;

use crate::elf::image::Image;
use super::config_table::ConfigTable;
use super::layouts::{self, Layout};

use crate::names::Identity;

/// The global `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server {
    /// Virtual address, as in the file.
    pub address: u64,
    /// Bytes; 0 where the file does not say.
    pub size: u64,
    /// Whether it is certain where it begins, and so how far members are from there.
    pub is_exact: bool,
}

/// A layout and where it would have `server` begin.
struct Candidate {
    release: String,
    layout: Layout,
    address: u64,
}

impl Candidate {
    fn of(release: String, layout: Layout, config: &ConfigTable) -> Option<Self> {
        let mut addresses = [
            ("maxmemory", layout.maxmemory),
            ("port", layout.port),
            ("maxclients", layout.maxclients),
            ("maxmemory_policy", layout.maxmemory_policy),
        ]
        .into_iter()
        .map(|(member, offset)| config.get(member)?.checked_sub(offset));
        let address = addresses.next()??;
        addresses
            .all(|other| other == Some(address))
            .then_some(Self {
                release,
                layout,
                address,
            })
    }

    fn is_in_writable_data(&self, image: &Image<'_>) -> bool {
        let last = self
            .address
            .checked_add(self.layout.sizeof.saturating_sub(1));
        image.is_writable(self.address) && last.is_some_and(|last| image.is_writable(last))
    }

    /// The addresses of all that is read by the layout.
    fn members(&self) -> [u64; 4] {
        let layout = &self.layout;
        [
            layout.stat_numcommands,
            layout.stat_expiredkeys,
            layout.stat_evictedkeys,
            layout.stat_clients_type_memory,
        ]
        .map(|offset| self.address.wrapping_add(offset))
    }
}

/// Deduces it from the configuration table. `evicted_keys` finds, in a range of addresses, the one
/// that the data flow gives for `stat_evictedkeys`.
///
/// # Errors
///
/// Why it cannot be told, in words.
pub fn server(
    image: &Image<'_>,
    config: &ConfigTable,
    identity: &Identity,
    mut evicted_keys: impl FnMut(Range<u64>) -> Option<u64>,
) -> Result<Server, String> {
    let mut candidates: Vec<Candidate> = layouts::layouts()?
        .into_iter()
        .filter_map(|(release, layout)| Candidate::of(release, layout, config))
        .filter(|candidate| candidate.is_in_writable_data(image))
        .collect();
    let begin = candidates.iter().map(|candidate| candidate.address).min();
    let end = candidates
        .iter()
        .map(|candidate| candidate.address.saturating_add(candidate.layout.sizeof))
        .max();
    if let (Some(begin), Some(end)) = (begin, end)
        && let Some(evicted_keys) = evicted_keys(begin..end)
    {
        candidates.retain(|candidate| candidate.members()[2] == evicted_keys);
    }
    narrow_to_release(&mut candidates, identity);
    let Some(first) = candidates.first() else {
        return Err(
            "no global variable called server, and no known layout of struct redisServer agrees with the configuration table"
                .to_owned(),
        );
    };
    if let Some(other) = candidates
        .iter()
        .find(|other| other.members() != first.members())
    {
        return Err(format!(
            "no global variable called server, and the layouts of {} and {} both agree with the configuration table",
            first.release, other.release
        ));
    }
    Ok(Server {
        address: first.address,
        size: first.layout.sizeof,
        is_exact: candidates
            .iter()
            .all(|other| other.address == first.address),
    })
}

/// Where one of the candidates is the layout of the very release that the executable says it is, it
/// is that one.
fn narrow_to_release(candidates: &mut Vec<Candidate>, identity: &Identity) {
    let (Some(product), Some(version)) = (identity.product, &identity.version) else {
        return;
    };
    let release = format!("{product} {version}");
    if candidates
        .iter()
        .any(|candidate| candidate.release == release)
    {
        candidates.retain(|candidate| candidate.release == release);
    }
}
