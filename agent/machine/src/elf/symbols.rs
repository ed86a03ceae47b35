//! The functions and variables that a file names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use evictscope_model::FileAddress;
use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};

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
    functions: HashMap<&'data str, NamedFunctions>,
    objects: HashMap<&'data str, Symbol>,
    function_names: HashMap<FileAddress, &'data str>,
    /// Whether a file has a table of all names (`.symtab`), and not only of those exported to other files.
    pub are_all: bool,
}

/// The functions of one name.
struct NamedFunctions {
    first: Symbol,
    others: BTreeSet<FileAddress>,
}

impl<'data> Symbols<'data> {
    /// Adds the names in `.symtab` and `.dynsym`. A name that is already known keeps its address.
    pub fn read(&mut self, file: &ElfFile64<'data, Endianness>, budget: &Budget) {
        self.are_all |= file.symbols().next().is_some();
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
        let NamedFunctions { first, others } =
            self.functions.entry(name).or_insert(NamedFunctions { first: function, others: BTreeSet::new() });
        if first.address != function.address {
            others.insert(function.address);
        }
        self.function_names.entry(function.address).or_insert(name);
    }

    /// Finds the function called `name`, or the only clone of it that a compiler made (`name.constprop.0`, …).
    pub fn function(&self, name: &str) -> Option<Symbol> {
        self.functions.get(name).map(|named| named.first).or_else(|| {
            let mut clones = self.functions.iter().filter(|(clone, _)| is_clone_of(clone, name));
            let (_, only) = clones.next()?;
            clones.next().is_none().then_some(only.first)
        })
    }

    /// Returns all functions called `name`, each with its own name; or else the clones that a compiler made of it.
    pub fn functions(&self, name: &str) -> BTreeMap<FileAddress, &'data str> {
        let is_known = self.functions.contains_key(name);
        let mut found = BTreeMap::new();
        for (own, named) in &self.functions {
            if *own == name || (!is_known && is_clone_of(own, name)) {
                for address in named.others.iter().chain([&named.first.address]) {
                    let known = found.entry(*address).or_insert(*own);
                    *known = (*known).max(own);
                }
            }
        }
        found
    }

    /// Returns the names of all functions.
    pub fn names(&self) -> impl Iterator<Item = &'data str> + '_ {
        self.functions.keys().copied()
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
fn name<'data>(symbol: &ElfSymbol64<'data, '_, Endianness>, data: &[u8], budget: &Budget) -> Option<&'data str> {
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
