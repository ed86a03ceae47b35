//! The static table of commands (`redisCommandTable`, `serverCommandTable`), which says which function implements each command,
//! even if the file has no names.
//!
//! The members of an entry differ between versions, so its layout is found by what the entries of well-known
//! commands have in common: the name at the beginning, a function of its own at the same offset, and the same
//! distance from one entry to the next.

use std::collections::BTreeSet;

use evictscope_machine::elf::{FileAddress, Image};

/// Commands that all versions have, and that are subcommands of none.
const WELL_KNOWN: [&str; 8] = [
    "lpush", "sadd", "zadd", "incr", "hset", "mget", "expire", "getset",
];
/// The most bytes of an entry: 272 in redis 8.6.
const MAX_ENTRY: u64 = 1_024;
/// The most bytes from the beginning of an entry to the pointer to its function: 80 in redis 7.0, later 96.
const MAX_PROC: u64 = 256;
/// The most entries that are read of one table; redis 8.6 has some 270.
const MAX_ENTRIES: usize = 2_048;
/// The longest name of a command that is read, in bytes.
const MAX_NAME: usize = 64;

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
        let mentions: Vec<Vec<FileAddress>> =
            (WELL_KNOWN.iter().map(|name| mentions(image, name))).collect();
        let (proc, known) = (8..=MAX_PROC)
            .step_by(8)
            .find_map(|proc| Some((proc, well_known(image, &mentions, proc)?)))?;
        let stride = stride(image, &known, proc)?;
        let mut table = Self {
            proc,
            stride,
            entries: Vec::new(),
        };
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
        let subcommands: Vec<_> = parents
            .flat_map(|parent| self.subcommands(image, parent))
            .collect();
        let own = subcommands.iter().filter(|entry| is_called(entry, name));
        own.filter_map(|entry| entry.proc).collect()
    }

    /// Returns the subcommands of a command: another array of such entries, to which it points after its own function.
    fn subcommands(&self, image: &Image<'data>, parent: &Entry<'_>) -> Vec<Entry<'data>> {
        let pointers = (self.proc + 8..self.stride).step_by(8);
        let mut arrays = pointers.filter_map(|offset| {
            let array = image.pointer_at(parent.at.checked_add(offset)?)?;
            let first = self
                .entry(image, array)
                .filter(|_| image.is_writable(array))?;
            first.proc.map(|_| array)
        });
        let (Some(array), None) = (arrays.next(), arrays.next()) else {
            return Vec::new();
        };
        self.walk(image, array)
    }

    /// Returns the commands, without subcommands, that the function at `address` implements.
    pub fn commands_of(&self, address: FileAddress) -> Vec<&'data str> {
        let own = self
            .entries
            .iter()
            .filter(|entry| entry.proc == Some(address));
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

/// Returns the entries of the well-known commands, by address, if each has one entry and a function of its own at this offset.
fn well_known(
    image: &Image<'_>,
    mentions: &[Vec<FileAddress>],
    proc: u64,
) -> Option<Vec<FileAddress>> {
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

/// Returns the least distance that divides those between all well-known entries, and at which another entry follows each of them.
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
    let is_name =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.:".contains(byte);
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
