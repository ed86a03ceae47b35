//! Finds the global `server` if it has no symbol.
//!
//! The table of configuration directives gives the addresses of four members or more. A known layout agrees if all of
//! them, less their offsets, give the same address. The layouts of some releases agree in all that is read and differ
//! in what comes before it; then the members' addresses are certain and only their offsets are not.

use std::ops::Range;

use evictscope_machine::elf::Image;
use evictscope_model::{FileAddress, Member};

use super::layouts::{Layout, layouts};
use super::sources::{ConfigTable, MemberError, only_in};
use crate::names::Identity;

/// More bytes than `server` has.
const LARGEST: u64 = 64 << 10;

/// The global `server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerObject {
    /// Virtual address, as in the file.
    pub address: FileAddress,
    /// Size in bytes; 0 if the file does not say.
    pub size: u64,
    /// Whether it is certain where it begins, and so what offsets members have.
    pub is_exact: bool,
}

impl ServerObject {
    /// Returns the addresses of its bytes.
    pub fn range(&self) -> Range<FileAddress> {
        self.address..self.address.saturating_add(self.size)
    }
}

/// Returns the addresses that can belong to `server`, wherever in it the members set by directives are.
pub fn around(config: &ConfigTable) -> Range<FileAddress> {
    let (lowest, highest) = (config.values().min(), config.values().max());
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return Range::default() };
    lowest.moved_back(LARGEST).unwrap_or_default()..highest.saturating_add(LARGEST)
}

/// A layout, and where `server` would begin with it.
struct LayoutCandidate {
    release: String,
    layout: Layout,
    address: FileAddress,
}

impl LayoutCandidate {
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

    /// Returns the addresses of the members read by the layout, but for the one that may lie before what differs.
    fn members(&self) -> impl Iterator<Item = Option<FileAddress>> {
        Member::counted().filter(|member| *member != Member::InitialMemoryUsage).map(|member| self.address_of(member))
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
) -> Result<ServerObject, MemberError> {
    let agreeing = layouts()?.into_iter().filter_map(|(release, layout)| LayoutCandidate::of(release, layout, config));
    let mut candidates: Vec<_> = agreeing.filter(|candidate| candidate.is_in_writable_data(image)).collect();
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
    Ok(ServerObject {
        address: first.address,
        size: first.layout.sizeof,
        is_exact: candidates.iter().all(|other| other.address == first.address),
    })
}

/// Keeps only the layout of the very release that the executable says it is, if that is among the candidates.
fn narrow_to_release(candidates: &mut Vec<LayoutCandidate>, identity: &Identity) {
    let (Some(product), Some(version)) = (identity.product, &identity.version) else { return };
    let release = format!("{product} {version}");
    if candidates.iter().any(|candidate| candidate.release == release) {
        candidates.retain(|candidate| candidate.release == release);
    }
}

#[cfg(test)]
mod tests {
    use evictscope_machine::elf::Image;
    use evictscope_model::{FileAddress, Member};
    use evictscope_testkit::compiler::compile;

    use super::server;
    use crate::members::layouts::layouts;
    use crate::members::{ConfigTable, MemberError, config_table};
    use crate::names::Identity;

    /// Compiles a configuration table whose members are where the layout of `release` has them;
    /// `server` has no name. `None` if there is no compiler.
    fn with_layout(release: &str) -> Option<Vec<u8>> {
        let layouts = layouts().unwrap_or_else(|error| panic!("{error}"));
        let at = |member| layouts[release].offset(member).unwrap_or_default();
        let source = format!(
            "char unnamed[16384] = {{1}};
             struct {{ const char *name; long fill[6]; void *data; }} configs[] = {{
                 {{\"port\", {{1}}, unnamed + 4096 + {}}},
                 {{\"maxclients\", {{0}}, unnamed + 4096 + {}}},
                 {{\"maxmemory\", {{0}}, unnamed + 4096 + {}}},
                 {{\"maxmemory-policy\", {{0}}, unnamed + 4096 + {}}},
             }};
             int main(void) {{ return configs[0].fill[0] == (long)unnamed; }}",
            at(Member::Port),
            at(Member::Maxclients),
            at(Member::Maxmemory),
            at(Member::MaxmemoryPolicy)
        );
        compile("gcc", &source, &["-O1"])
    }

    /// Returns the distance of `server` from where the layout begins, and whether it is exact.
    fn server_of(
        data: &[u8],
        identity: &Identity,
        counted: impl Fn(&ConfigTable) -> Vec<FileAddress>,
    ) -> Result<(u64, bool), MemberError> {
        let image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
        let config = config_table(&image)?;
        let begin = image.symbols.object("unnamed").map(|symbol| symbol.address).unwrap_or_default();
        let found = server(&image, &config, identity, &counted(&config))?;
        Ok((found.address.wrapping_sub(begin.wrapping_add(4096)), found.is_exact))
    }

    fn redis(version: &str) -> Identity {
        Identity { product: Some("redis"), version: Some(version.to_owned()), ..Identity::default() }
    }

    #[test]
    fn the_layout_says_where_server_begins() {
        for release in ["redis 7.0.15", "redis 7.2.6", "redis 7.4.1", "valkey 8.0.1"] {
            let Some(data) = with_layout(release) else { return };
            let found = server_of(&data, &Identity::default(), |_| Vec::new());
            assert_eq!(found, Ok((0, true)), "{release}");
        }
    }

    #[test]
    fn layouts_that_differ_in_what_is_read_are_refused() {
        // The four directives have the same offsets in 6.0.0 and 6.0.4 to 6.0.6, but the statistics do not.
        let Some(data) = with_layout("redis 6.0.6") else { return };
        let found = server_of(&data, &Identity::default(), |_| Vec::new());
        assert!(found.as_ref().is_err_and(|why| why.to_string().contains("redis 6.0.0 and redis 6.0.4")), "{found:?}");
        // The eviction function or the version tells them apart.
        let found =
            server_of(&data, &Identity::default(), |config| vec![config[&Member::Port].wrapping_add(1184 - 212)]);
        assert_eq!(found, Ok((0, true)));
        assert_eq!(server_of(&data, &redis("6.0.6"), |_| Vec::new()), Ok((0, true)));
    }

    #[test]
    fn layouts_that_differ_only_in_what_lies_before_give_no_offsets() {
        let Some(data) = with_layout("redis 6.0.14") else { return };
        // A release whose layout is not known.
        let found = server_of(&data, &redis("6.0.99"), |_| Vec::new());
        assert!(matches!(found, Ok((_, false))), "{found:?}");
        assert_eq!(server_of(&data, &redis("6.0.14"), |_| Vec::new()), Ok((0, true)));
    }
}
