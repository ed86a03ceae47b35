//! The known layouts of `struct redisServer`, which count only where everything else that is known
//! agrees with exactly one of them.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::ConfigTable;

/// `struct redisServer` of 27 releases: offsets of members, and `sizeof`, in bytes.
const LAYOUTS: &str = include_str!("server-layouts.json");

/// The layout of `struct redisServer` of one or more releases.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Layout {
    /// Offset of `port`.
    pub port: u64,
    /// Offset of `clients`.
    pub clients: u64,
    /// Offset of `stat_numcommands`.
    pub stat_numcommands: u64,
    /// Offset of `stat_expiredkeys`.
    pub stat_expiredkeys: u64,
    /// Offset of `stat_evictedkeys`.
    pub stat_evictedkeys: u64,
    /// Offset of `stat_clients_type_memory`.
    pub stat_clients_type_memory: u64,
    /// Offset of `aof_buf`.
    pub aof_buf: u64,
    /// Offset of `maxclients`.
    pub maxclients: u64,
    /// Offset of `maxmemory`.
    pub maxmemory: u64,
    /// Offset of `maxmemory_policy`.
    pub maxmemory_policy: u64,
    /// Size of the structure.
    pub sizeof: u64,
}

/// The layout that agrees with all that is known, and the releases that have it.
#[derive(Debug)]
pub struct KnownLayout {
    /// The layout.
    pub layout: Layout,
    /// Releases that have it, such as `redis 7.0.15`.
    pub releases: Vec<String>,
}

/// What is known of `server` without a layout.
pub struct ServerFacts<'a> {
    /// Address of `server`, where it has a name.
    pub address: u64,
    /// Its size; 0 where the file does not say.
    pub size: u64,
    /// Addresses from the configuration table.
    pub config: &'a ConfigTable,
    /// Address of `stat_evictedkeys` from the data flow.
    pub evicted_keys: Option<u64>,
}

/// The known layouts, by release, such as `redis 7.0.15`.
///
/// # Errors
///
/// Where the table is broken, in words.
pub fn layouts() -> Result<BTreeMap<String, Layout>, String> {
    serde_json::from_str(LAYOUTS)
        .map_err(|error| format!("the table of layouts is broken: {error}"))
}

/// The one known layout that agrees with every fact.
///
/// # Errors
///
/// Why there is none, in words.
pub fn known_layout(facts: &ServerFacts<'_>) -> Result<KnownLayout, String> {
    let mut matching: Vec<KnownLayout> = Vec::new();
    for (release, layout) in layouts()?
        .into_iter()
        .filter(|(_, layout)| agrees(layout, facts))
    {
        match matching.iter_mut().find(|known| known.layout == layout) {
            Some(known) => known.releases.push(release),
            None => matching.push(KnownLayout {
                layout,
                releases: vec![release],
            }),
        }
    }
    match matching.len() {
        0 => Err("no known layout of struct redisServer agrees with this executable".to_owned()),
        1 => Ok(matching.swap_remove(0)),
        count => Err(format!(
            "{count} known layouts of struct redisServer agree with this executable"
        )),
    }
}

fn agrees(layout: &Layout, facts: &ServerFacts<'_>) -> bool {
    let at = |member: &str, offset: u64| {
        facts
            .config
            .get(member)
            .is_none_or(|address| *address == facts.address.wrapping_add(offset))
    };
    at("maxmemory", layout.maxmemory)
        && at("port", layout.port)
        && at("maxclients", layout.maxclients)
        && at("maxmemory_policy", layout.maxmemory_policy)
        && (facts.size == 0 || facts.size == layout.sizeof)
        && facts
            .evicted_keys
            .is_none_or(|address| address == facts.address.wrapping_add(layout.stat_evictedkeys))
}

impl KnownLayout {
    /// The series that the releases have in common, such as `7.0`, where all are of `product`.
    pub fn series(&self, product: &str) -> Option<&str> {
        let mut series = self.releases.iter().map(|release| series(product, release));
        let first = series.next()??;
        series.all(|other| other == Some(first)).then_some(first)
    }

    /// Whether the layout can be that of `version` of `product`: it is that of a release of the
    /// same series, or no layout of that series is known.
    pub fn fits(&self, product: &str, version: &str) -> bool {
        let wanted = version.rsplit_once('.').map(|(series, _)| series);
        let is_of_series = |release: &String| series(product, release) == wanted;
        self.releases.iter().any(is_of_series)
            || !layouts().is_ok_and(|all| all.keys().any(is_of_series))
    }
}

/// The series of a release such as `redis 7.0.15`, if it is one of `product`.
fn series<'a>(product: &str, release: &'a str) -> Option<&'a str> {
    let version = release.strip_prefix(product)?.strip_prefix(' ')?;
    version.rsplit_once('.').map(|(series, _)| series)
}
