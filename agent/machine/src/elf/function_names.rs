//! The functions that the executable and its debug file name: all of them, even if several have the same name.

use std::collections::{BTreeMap, BTreeSet};

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};

use super::address::FileAddress;
use super::error::ElfError;
use super::symbols::name;
use crate::budget::Budget;

/// The most symbols to read from one file; executables of some megabytes have ten thousand.
const MAX_SYMBOLS: usize = 300_000;

/// Memory for one name with its addresses, in bytes.
const NAME_BYTES: usize = 128;

/// The names of functions.
#[derive(Default)]
pub struct FunctionNames<'data> {
    names: BTreeMap<&'data str, BTreeSet<FileAddress>>,
    /// Whether a file has a table of all names (`.symtab`), and not only of those exported to other files.
    pub are_all: bool,
}

impl<'data> FunctionNames<'data> {
    /// Reads those of an executable or a debug file, whose content has already been checked.
    pub fn read(&mut self, data: &'data [u8], budget: &Budget) -> Result<(), ElfError> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        self.are_all |= file.symbols().next().is_some();
        let symbols = file.symbols().chain(file.dynamic_symbols());
        for symbol in symbols.take(MAX_SYMBOLS) {
            if !symbol.is_definition() || symbol.kind() != SymbolKind::Text {
                continue;
            }
            let Some(name) = name(&symbol, data, budget) else {
                continue;
            };
            if !budget.keep(NAME_BYTES) {
                break;
            }
            // A versioned name (`qsort@@GLIBC_2.2.5`) is the same name.
            let name = name.split('@').next().unwrap_or(name);
            let address = FileAddress::new(symbol.address());
            self.names.entry(name).or_default().insert(address);
        }
        Ok(())
    }

    /// Returns the functions of this name, each with its own name. If there are none, returns the clones that a
    /// compiler made of it (`name.constprop.0`, …).
    pub fn functions(&self, name: &str) -> BTreeMap<FileAddress, &'data str> {
        let exact = self.names.get_key_value(name);
        let of = |(name, addresses): (&&'data str, &BTreeSet<FileAddress>)| {
            let name = *name;
            let addresses = addresses.iter().map(move |address| (*address, name));
            addresses.collect::<Vec<_>>()
        };
        if let Some(exact) = exact {
            return of(exact).into_iter().collect();
        }
        let is_clone = |(own, _): &(&&str, &BTreeSet<FileAddress>)| {
            let rest = own
                .strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('.'));
            rest.is_some_and(|clone| !is_part(clone))
        };
        self.names.iter().filter(is_clone).flat_map(of).collect()
    }

    /// Returns the name of the function at an address.
    pub fn name(&self, address: FileAddress) -> Option<&'data str> {
        let mut names = self.names.iter();
        let own = names.find(|(_, addresses)| addresses.contains(&address));
        own.map(|(name, _)| *name)
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &'data str> + '_ {
        self.names.keys().copied()
    }
}

/// Returns whether the suffix of a function's name says that it is a part that was moved elsewhere, or into a function
/// of its own.
fn is_part(suffix: &str) -> bool {
    suffix.starts_with("cold") || suffix.starts_with("part")
}
