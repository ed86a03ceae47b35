//! The members of `struct redisServer server`, and the allocator's counter.
//!
//! Three sources, each cross-checked with the others: the static table of configuration directives
//! (`standardConfig` entries in config.c), which gives addresses; the data flow of the eviction
//! function; and the table of known layouts, which counts only where everything else that is known
//! agrees with exactly one layout.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::code::FunctionCode;
use super::execute::Execution;
use super::image::Image;
use super::value::{Atom, Value};

/// Distances between the name pointer and the data pointer of a configuration directive, bytes.
const CONFIG_STRIDES: [u64; 2] = [56, 64];
/// Directives whose variables are members of `server`, and the names of those members.
const DIRECTIVES: [(&str, &str); 4] = [
    ("maxmemory", "maxmemory"),
    ("port", "port"),
    ("maxclients", "maxclients"),
    ("maxmemory-policy", "maxmemory_policy"),
];
/// `struct redisServer` of 27 releases: offsets of members, and `sizeof`, in bytes.
const LAYOUTS: &str = include_str!("server-layouts.json");

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

/// The one address of which there may be several mentions; none where there are different ones.
fn only(mut found: Vec<u64>) -> Option<u64> {
    found.sort_unstable();
    found.dedup();
    match found.as_slice() {
        [only] => Some(*only),
        _ => None,
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

/// The one 8-byte member of `server` that the blocks add 1 to: `stat_evictedkeys`.
pub fn incremented_member(
    code: &FunctionCode,
    blocks: impl IntoIterator<Item = usize>,
    server: std::ops::Range<u64>,
) -> Option<u64> {
    use iced_x86::{Mnemonic, OpKind, Register};
    let found: Vec<u64> = blocks
        .into_iter()
        .filter_map(|index| code.blocks.get(index))
        .flat_map(|block| &block.instructions)
        .filter(|instruction| {
            let adds_one = match instruction.mnemonic() {
                Mnemonic::Inc => true,
                Mnemonic::Add => instruction.try_immediate(1).is_ok_and(|by| by == 1),
                Mnemonic::Sub => instruction.try_immediate(1).is_ok_and(|by| by == u64::MAX),
                _ => false,
            };
            adds_one
                && instruction.op0_kind() == OpKind::Memory
                && instruction.memory_base() == Register::RIP
                && instruction.memory_size().size() == 8
        })
        .map(iced_x86::Instruction::memory_displacement64)
        .filter(|address| server.contains(address))
        .collect();
    only(found)
}

/// The allocator's counter behind `mem_reported`: the global that it was loaded from, or that the
/// function which returned it loads.
///
/// # Errors
///
/// Why it is not one global, in words.
pub fn counter_behind(
    image: &Image<'_>,
    mem_reported: &Value,
    execution: &Execution<'_>,
) -> Result<u64, String> {
    if let Some(address) = execution.atoms.as_global(mem_reported) {
        return Ok(address);
    }
    let atom = mem_reported.as_atom();
    match atom.and_then(|atom| execution.atoms.get(atom)) {
        Some(Atom::Call {
            callee: Some(callee),
            ..
        }) => counter_returned_by(image, *callee),
        _ => Err("mem_reported is neither a global nor the result of a call".to_owned()),
    }
}

/// The one global that the function at `address`, `zmalloc_used_memory()`, loads and returns.
///
/// # Errors
///
/// Why it is not one global, in words.
pub fn counter_returned_by(image: &Image<'_>, address: u64) -> Result<u64, String> {
    let code = FunctionCode::decode(image, address).map_err(|error| error.to_string())?;
    let mut execution = Execution::run(&code);
    let mut counters = Vec::new();
    for block in (0..code.blocks.len()).filter(|index| code.blocks[*index].leaves) {
        let state = execution.states_in(block).pop();
        counters.push(state.and_then(|state| execution.atoms.as_global(&state.registers[0])));
    }
    counters.dedup();
    match counters.as_slice() {
        [Some(only)] => Ok(*only),
        _ => Err("zmalloc_used_memory() does more than load one counter".to_owned()),
    }
}
