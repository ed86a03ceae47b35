//! The functions and variables that a file names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use evictscope_model::FileAddress;
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};

use super::segments::ElfError;
use crate::budget::Budget;

/// The most symbols to read from one file; executables of some megabytes have ten thousand.
const MAX_SYMBOLS: usize = 300_000;

/// A function or variable with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Virtual address, as in the file.
    pub address: FileAddress,
    /// Bytes; 0 if the file does not say.
    pub size: u64,
}

/// The names of one executable.
#[derive(Default)]
pub struct Symbols<'data> {
    functions: HashMap<&'data str, Symbol>,
    objects: HashMap<&'data str, Symbol>,
    function_names: HashMap<FileAddress, &'data str>,
}

impl<'data> Symbols<'data> {
    /// Adds the names in `.symtab` and `.dynsym`. A name that is already known keeps its address.
    pub fn read(&mut self, file: &ElfFile64<'data, Endianness>, budget: &Budget) {
        let symbols = file.symbols().chain(file.dynamic_symbols()).take(MAX_SYMBOLS);
        for symbol in symbols.filter(|symbol| symbol.is_definition()) {
            let Some(name) = name(&symbol, file.data(), budget) else { continue };
            let found = Symbol { address: FileAddress::new(symbol.address()), size: symbol.size() };
            match symbol.kind() {
                SymbolKind::Text => self.add_function(name, found),
                SymbolKind::Data => {
                    self.objects.entry(name).or_insert(found);
                }
                _ => {}
            }
        }
    }

    /// Adds a function. A name that is already known keeps its address, and an address its name.
    pub fn add_function(&mut self, name: &'data str, function: Symbol) {
        self.functions.entry(name).or_insert(function);
        let names = &mut self.function_names;
        names.entry(function.address).or_insert(name);
    }

    /// Finds the function called `name`, or the only clone of it that a compiler made (`name.constprop.0`, …).
    pub fn function(&self, name: &str) -> Option<Symbol> {
        self.functions.get(name).copied().or_else(|| {
            let mut clones = self.functions.iter().filter(|(clone, _)| is_clone_of(clone, name));
            let (_, only) = clones.next()?;
            clones.next().is_none().then_some(*only)
        })
    }

    /// Returns the name of the function that begins at `address`.
    pub fn function_name(&self, address: FileAddress) -> Option<&'data str> {
        self.function_names.get(&address).copied()
    }

    /// Returns the start and name of each function that has a name.
    pub fn function_names(&self) -> impl Iterator<Item = (FileAddress, &'data str)> + '_ {
        self.function_names.iter().map(|(address, name)| (*address, *name))
    }

    /// Finds the global variable called `name`.
    pub fn object(&self, name: &str) -> Option<Symbol> {
        self.objects.get(name).copied()
    }
}

/// Returns a symbol's name in the file whose whole content is `data`, if it has one and the budget suffices.
pub fn name<'data>(symbol: &ElfSymbol64<'data, '_, Endianness>, data: &[u8], budget: &Budget) -> Option<&'data str> {
    if budget.is_spent() {
        return None;
    }
    let Ok(name) = symbol.name_bytes() else {
        // The search for its end covered the whole table, which may be as large as the file.
        budget.scan(data.len());
        return None;
    };
    let is_paid = budget.scan(name.len());
    // A versioned name (`stdout@@GLIBC_2.2.5`) is the same name.
    std::str::from_utf8(name).ok().filter(|_| is_paid)?.split('@').next()
}

/// Returns whether a name is that of a clone that a compiler made of the function `name`, and not of a part that it
/// moved elsewhere, or into a function of its own.
fn is_clone_of(clone: &str, name: &str) -> bool {
    let suffix = clone.strip_prefix(name).and_then(|rest| rest.strip_prefix('.'));
    suffix.is_some_and(|suffix| !suffix.starts_with("cold") && !suffix.starts_with("part"))
}

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
        for symbol in file.symbols().chain(file.dynamic_symbols()).take(MAX_SYMBOLS) {
            if !symbol.is_definition() || symbol.kind() != SymbolKind::Text {
                continue;
            }
            let Some(name) = name(&symbol, data, budget) else { continue };
            if !budget.keep(NAME_BYTES) {
                break;
            }
            self.names.entry(name).or_default().insert(FileAddress::new(symbol.address()));
        }
        Ok(())
    }

    /// Returns the functions of this name, each with its own name. If there are none, returns the clones that a
    /// compiler made of it (`name.constprop.0`, …).
    pub fn functions(&self, name: &str) -> BTreeMap<FileAddress, &'data str> {
        let exact = self.names.get_key_value(name);
        let of = |(name, addresses): (&&'data str, &BTreeSet<FileAddress>)| {
            let name = *name;
            addresses.iter().map(move |address| (*address, name)).collect::<Vec<_>>()
        };
        if let Some(exact) = exact {
            return of(exact).into_iter().collect();
        }
        let is_clone = |(candidate, _): &(&&str, &BTreeSet<FileAddress>)| is_clone_of(candidate, name);
        self.names.iter().filter(is_clone).flat_map(of).collect()
    }

    /// Returns the name of the function at an address.
    pub fn name(&self, address: FileAddress) -> Option<&'data str> {
        self.names.iter().find(|(_, addresses)| addresses.contains(&address)).map(|(name, _)| *name)
    }

    /// Returns all names.
    pub fn names(&self) -> impl Iterator<Item = &'data str> + '_ {
        self.names.keys().copied()
    }
}
