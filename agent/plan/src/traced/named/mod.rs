//! A function that a user names: by its symbol, or by the command that it implements.
//!
//! Each call is timed from its entry to its return, so nothing else about it needs to be known. It is not an entry of
//! [`TRACED`](super::TRACED): only `evictscope trace` asks for it.
//!
//! The static table of commands (`redisCommandTable`, `serverCommandTable`), which says which function implements each
//! command, even if the file has no names.
//!
//! The members of an entry differ between versions, so its layout is found by what the entries of well-known
//! commands have in common: the name at the beginning, a function of its own at the same offset, and the same
//! distance from one entry to the next.

use std::collections::BTreeSet;
use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_machine::elf::{ElfError, FunctionNames, Image};
use evictscope_machine::sites::{Site, entry};
use evictscope_model::FileAddress;

use crate::names::{self, Identity};

/// The most names that are suggested.
const SUGGESTED: usize = 5;
/// The longest name that is read of a command, or looked at for a suggestion, in bytes.
const MAX_NAME: usize = 64;
/// How alike a name must be to be suggested, from 0 to 1.
const ALIKE: f64 = 0.84;

/// A function that was found by its name.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// Its name in the file, if it has one there.
    pub name: Option<String>,
    /// The commands that it implements, in capital letters.
    pub commands: Vec<String>,
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Passed by every call before the stack pointer moves; both probes are here.
    pub entry: Site,
    /// The server that has it.
    pub identity: Identity,
}

impl fmt::Display for NamedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "the function at {:#x}", self.address)?,
        }
        match self.commands.as_slice() {
            [] => Ok(()),
            commands => write!(f, ", which implements {}", commands.join(", ")),
        }
    }
}

/// Why a function cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The file cannot be read as an executable.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is not a server.
    #[error("the executable is not a Redis or Valkey server")]
    NotAServer,
    /// It has nothing of this name.
    #[error("the executable has no function or command called {name}{}", advice(.near, *.has_symbols, *.has_commands))]
    NotFound {
        /// What was asked for.
        name: String,
        /// Similar names.
        near: Vec<String>,
        /// Whether the file, or its debug file, names its own functions and not only those that it exports to modules.
        has_symbols: bool,
        /// Whether the table of commands was found.
        has_commands: bool,
    },
    /// Several functions have this name.
    #[error("{0} functions are called {1}, at {2}: it is not certain which one is meant")]
    Ambiguous(usize, String, String),
    /// A probe in it could do harm, or would count something else.
    #[error("{0} cannot be traced: {1}")]
    Refused(String, String),
    /// The budget for one file ran out.
    #[error("looking for the function takes too long; the file may be damaged")]
    Budget,
}

/// Returns what to do if a name was not found.
fn advice(near: &[String], has_symbols: bool, has_commands: bool) -> String {
    let mut advice = match near {
        [] => String::new(),
        near => format!("; similar names: {}", near.join(", ")),
    };
    advice += match (has_commands, has_symbols) {
        (true, _) => "; a command's function can be named by the command, such as GET or CONFIG|GET",
        (false, _) => "; its table of commands was not found, so only functions with a symbol can be named",
    };
    if !has_symbols {
        advice += "; it is stripped: with its debug symbols installed (or --debug-dir) all functions have names, except those that the compiler inlined";
    }
    advice
}

/// Finds the function called `name` in the executable whose whole content is `data`, or in its debug file, whose whole
/// content is `debug`; or else the function that implements the command of that name, in any case.
///
/// # Errors
///
/// Fails if there is none or more than one, it cannot be probed, or the file is not a server.
pub fn named_function(data: &[u8], debug: Option<&[u8]>, name: &str) -> Result<NamedFunction, NameError> {
    let mut image = Image::parse(data)?;
    if let Some(debug) = debug {
        image.add_symbols_of(debug)?;
    }
    let texts = names::find(&mut image, &[]);
    let identity = names::identity(&image, &texts);
    let mut functions = FunctionNames::default();
    for data in std::iter::once(data).chain(debug) {
        functions.read(data, &image.budget)?;
    }
    let found = find(&image, &functions, identity, name);
    match image.budget.is_spent() {
        true => Err(NameError::Budget),
        false => found,
    }
}

fn find(
    image: &Image<'_>,
    functions: &FunctionNames<'_>,
    identity: Identity,
    name: &str,
) -> Result<NamedFunction, NameError> {
    if identity.product.is_none() {
        return Err(NameError::NotAServer);
    }
    let table = CommandTable::find(image);
    let mut named = functions.functions(name);
    if let Some(table) = table.as_ref().filter(|_| named.is_empty()) {
        let own = table.functions(image, name).into_iter();
        named.extend(own.map(|address| (address, "")));
    }
    let mut all = named.iter();
    let (address, found) = match (all.next(), all.next()) {
        (Some((address, &"")), None) => (*address, functions.name(*address).unwrap_or_default()),
        (Some((address, found)), None) => (*address, *found),
        (None, _) => return Err(not_found(image, functions, table.as_ref(), name)),
        _ => {
            let places: Vec<String> = named.keys().map(|at| format!("{at:#x}")).collect();
            let name = name.to_owned();
            return Err(NameError::Ambiguous(places.len(), name, places.join(", ")));
        }
    };
    let commands = table.map_or_else(Vec::new, |table| table.commands_of(address));
    let mut commands: Vec<String> = commands.iter().map(|name| name.to_uppercase()).collect();
    // Of all subcommands, it is known to implement only the one that was asked for.
    if commands.is_empty() && functions.functions(name).is_empty() {
        commands.push(name.to_uppercase());
    }
    let entry = entry::of_named(image, address, found);
    let refused = |why| NameError::Refused(name.to_owned(), why);
    Ok(NamedFunction {
        name: Some(found).filter(|name| !name.is_empty()).map(str::to_owned),
        commands,
        address,
        entry: entry.map_err(refused)?,
        identity,
    })
}

fn not_found(
    image: &Image<'_>,
    functions: &FunctionNames<'_>,
    table: Option<&CommandTable<'_>>,
    name: &str,
) -> NameError {
    let asked = name.to_lowercase();
    let command = table.into_iter().flat_map(CommandTable::names);
    let command = command.map(str::to_uppercase);
    let all = functions.names().map(str::to_owned).chain(command);
    let mut near: Vec<(f64, String)> = all
        .filter(|own| own.len() <= MAX_NAME && image.budget.spend(1 + own.len() as u64))
        .map(|own| (strsim::jaro_winkler(&asked, &own.to_lowercase()), own))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    near.dedup();
    near.truncate(SUGGESTED);
    NameError::NotFound {
        name: name.to_owned(),
        near: near.into_iter().map(|(_, name)| name).collect(),
        has_symbols: functions.are_all,
        has_commands: table.is_some(),
    }
}

/// Commands that all versions have, and that are subcommands of none.
const WELL_KNOWN: [&str; 8] = ["lpush", "sadd", "zadd", "incr", "hset", "mget", "expire", "getset"];
/// The most bytes of an entry: 272 in redis 8.6.
const MAX_ENTRY: u64 = 1_024;
/// The most bytes from the beginning of an entry to the pointer to its function: 80 in redis 7.0, later 96.
const MAX_PROC: u64 = 256;
/// The most entries that are read of one table; redis 8.6 has some 270.
const MAX_ENTRIES: usize = 2_048;

/// The table, and how its entries are laid out.
#[derive(Debug)]
pub struct CommandTable<'data> {
    /// From the beginning of an entry to the pointer to its function.
    proc: u64,
    /// From one entry to the next.
    stride: u64,
    /// In the order of the table.
    entries: Vec<Entry<'data>>,
}

/// A command.
#[derive(Clone, Copy, Debug)]
struct Entry<'data> {
    at: FileAddress,
    /// In lower case.
    name: &'data str,
    /// The function; `None` for a command that only has subcommands.
    proc: Option<FileAddress>,
}

impl<'data> CommandTable<'data> {
    /// Finds the table; `None` if the file has none that is certain.
    pub fn find(image: &Image<'data>) -> Option<Self> {
        let mentions: Vec<Vec<FileAddress>> = (WELL_KNOWN.iter().map(|name| mentions(image, name))).collect();
        let (proc, known) =
            (8..=MAX_PROC).step_by(8).find_map(|proc| Some((proc, well_known(image, &mentions, proc)?)))?;
        let stride = stride(image, &known, proc)?;
        let mut table = Self { proc, stride, entries: Vec::new() };
        let first = *known.first()?;
        let mut before = Vec::new();
        let mut at = first;
        while let Some(entry) = at.moved_back(stride).and_then(|at| table.entry(image, at)) {
            at = entry.at;
            before.push(entry);
            if before.len() == MAX_ENTRIES {
                return None;
            }
        }
        before.reverse();
        table.entries = before;
        table.entries.extend(table.walk(image, first));
        // All of them must be in this table.
        let is_listed = |at: &FileAddress| table.entries.iter().any(|entry| entry.at == *at);
        known.iter().all(is_listed).then_some(table)
    }

    /// Returns the entries from `at` on.
    fn walk(&self, image: &Image<'data>, at: FileAddress) -> Vec<Entry<'data>> {
        let places = (0..MAX_ENTRIES as u64).map_while(|index| at.checked_add(index * self.stride));
        places.map_while(|at| self.entry(image, at)).collect()
    }

    fn entry(&self, image: &Image<'data>, at: FileAddress) -> Option<Entry<'data>> {
        entry(image, at, self.proc)
    }

    /// Returns the functions of the command called `name`, in any case; a subcommand is named as in
    /// `config|get`. There are several only if the table is not what it seems.
    pub fn functions(&self, image: &Image<'data>, name: &str) -> BTreeSet<FileAddress> {
        let is_called = |entry: &&Entry<'_>, name: &str| entry.name.eq_ignore_ascii_case(name);
        let Some((parent, name)) = name.split_once('|') else {
            let own = self.entries.iter().filter(|entry| is_called(entry, name));
            return own.filter_map(|entry| entry.proc).collect();
        };
        let parents = self.entries.iter().filter(|entry| is_called(entry, parent));
        let subcommands: Vec<_> = parents.flat_map(|parent| self.subcommands(image, parent)).collect();
        let own = subcommands.iter().filter(|entry| is_called(entry, name));
        own.filter_map(|entry| entry.proc).collect()
    }

    /// Returns the subcommands of a command: another array of such entries, to which it points after its own function.
    fn subcommands(&self, image: &Image<'data>, parent: &Entry<'_>) -> Vec<Entry<'data>> {
        let pointers = (self.proc + 8..self.stride).step_by(8);
        let mut arrays = pointers.filter_map(|offset| {
            let array = image.pointer_at(parent.at.checked_add(offset)?)?;
            let first = self.entry(image, array).filter(|_| image.is_writable(array))?;
            first.proc.map(|_| array)
        });
        let (Some(array), None) = (arrays.next(), arrays.next()) else {
            return Vec::new();
        };
        self.walk(image, array)
    }

    /// Returns the commands, without subcommands, that the function at `address` implements.
    pub fn commands_of(&self, address: FileAddress) -> Vec<&'data str> {
        let own = self.entries.iter().filter(|entry| entry.proc == Some(address));
        own.map(|entry| entry.name).collect()
    }

    /// Returns each command's function and name.
    pub fn all(&self) -> impl Iterator<Item = (FileAddress, &'data str)> + '_ {
        let named = |entry: &Entry<'data>| Some((entry.proc?, entry.name));
        self.entries.iter().filter_map(named)
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &'data str> + '_ {
        self.entries.iter().map(|entry| entry.name)
    }
}

/// Returns where pointers to a text are.
fn mentions(image: &Image<'_>, text: &str) -> Vec<FileAddress> {
    let places = image.find_string(text).into_iter();
    places.flat_map(|place| image.pointers_to(place)).collect()
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
        let entries = mentions.iter().filter_map(|at| entry(image, *at, proc));
        let mut entries = entries.filter(|entry| entry.proc.is_some());
        let (Some(only), None) = (entries.next(), entries.next()) else {
            return None;
        };
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
        let mut next = known.iter().filter_map(next);
        next.all(|at| entry(image, at, proc).is_some())
    };
    let divides = |stride: u64| {
        let mut distances = known.iter().map(|at| at.wrapping_sub(first));
        distances.all(|distance| distance % stride == 0)
    };
    let mut strides = (proc + 8..=MAX_ENTRY).step_by(8);
    strides.find(|stride| divides(*stride) && has_next(*stride))
}

/// Returns the entry at an address, if one can be there.
fn entry<'data>(image: &Image<'data>, at: FileAddress, proc: u64) -> Option<Entry<'data>> {
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
        _ => Some(function).filter(|own| image.is_code(*own) && image.is_function(*own)),
    };
    let name = std::str::from_utf8(name).ok()?;
    (proc.is_some() || function.get() == 0).then_some(Entry { at, name, proc })
}

#[cfg(test)]
mod tests;
