//! One pass over the top level of the units: global variables and functions.

use std::collections::BTreeMap;

use evictscope_model::FileAddress;
use gimli::{AttributeValue, Operation, Unit, constants};

use super::units::{DwarfError, Entry, EntryId, Reader, Units};

/// The most variables of each name, and functions in all, to look at further; mostly there is one, and perhaps a clone.
const MAX_FOUND: usize = 64;

/// A variable with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name, one of those asked for.
    pub name: &'static str,
    /// Its virtual address.
    pub address: FileAddress,
    /// Its type.
    pub of: EntryId,
}

/// A function with code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DebugFunction {
    /// Its name in the source, one of those asked for.
    pub name: &'static str,
    /// Virtual address of its first instruction.
    pub address: FileAddress,
    /// Its entry.
    pub id: EntryId,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Globals {
    /// The variables with the names asked for.
    pub variables: Vec<Global>,
    /// The functions with the names asked for, and their clones.
    pub functions: Vec<DebugFunction>,
}

/// The function that is looked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The names it may have, the best first.
    pub names: &'a [&'static str],
    /// Its address, if known from elsewhere.
    pub entry: Option<FileAddress>,
}

impl Globals {
    /// Searches all units for variables of these names, and for a function. A unit is read up to the first entry that
    /// cannot be read. Fails if there are too many entries.
    pub fn find(units: &Units<'_>, variables: &[&'static str], asked: Asked<'_>) -> Result<Self, DwarfError> {
        let mut found = Self::default();
        for (index, unit) in units.units.iter().enumerate() {
            found.look_through(units, index, unit, variables, asked)?;
        }
        Ok(found)
    }

    /// Returns the function that is meant; `None` if it could be any of several.
    pub fn function(&self, asked: Asked<'_>) -> Option<DebugFunction> {
        let named = |name: &&str| -> Vec<DebugFunction> {
            self.functions.iter().filter(|function| function.name == *name).copied().collect()
        };
        let candidates = (asked.names.iter().map(named)).find(|found| !found.is_empty())?;
        let at_entry = candidates.iter().find(|function| Some(function.address) == asked.entry);
        match (at_entry, candidates.as_slice()) {
            (Some(function), _) | (None, [function]) => Some(*function),
            _ => None,
        }
    }

    fn look_through<'a>(
        &mut self,
        units: &Units<'a>,
        index: usize,
        unit: &Unit<Reader<'a>>,
        variables: &[&'static str],
        asked: Asked<'_>,
    ) -> Result<(), DwarfError> {
        let Ok(mut entries) = unit.entries_raw(None) else { return Ok(()) };
        let mut entry = Entry::null();
        while !entries.is_empty() {
            let (depth, offset) = (entries.next_depth(), entries.next_offset());
            let mut ahead = entries.clone();
            let Ok(abbreviation) = ahead.read_abbreviation() else { return Ok(()) };
            let Some(abbreviation) = abbreviation else {
                entries = ahead;
                continue;
            };
            units.count(abbreviation.attributes().len())?;
            let tag = abbreviation.tag();
            let wanted = matches!(tag, constants::DW_TAG_variable | constants::DW_TAG_subprogram);
            if depth != 1 || !wanted {
                if ahead.skip_attributes(abbreviation.attributes()).is_err() {
                    return Ok(());
                }
                entries = ahead;
                continue;
            }
            if entries.read_entry(&mut entry).is_err() {
                return Ok(());
            }
            let id = EntryId { unit: index, offset };
            match tag {
                constants::DW_TAG_variable => self.add_variable(units, id, &entry, variables),
                _ => self.add_function(units, id, &entry, asked),
            }
        }
        Ok(())
    }

    fn add_variable<'a>(&mut self, units: &Units<'a>, id: EntryId, entry: &Entry<'a>, wanted: &[&'static str]) {
        let Some(address) = static_address(units, id.unit, entry) else { return };
        let name = units.name(id.unit, entry);
        let Some(name) = wanted.iter().find(|candidate| name == Some(**candidate)) else { return };
        let Some(of) = units.type_of(id.unit, entry) else { return };
        let known = self.variables.iter().filter(|variable| variable.name == *name);
        let is_new = known.clone().all(|known| known.address != address);
        if is_new && known.count() < MAX_FOUND {
            self.variables.push(Global { name, address, of });
        }
    }

    fn add_function<'a>(&mut self, units: &Units<'a>, id: EntryId, entry: &Entry<'a>, asked: Asked<'_>) {
        let has_code =
            [constants::DW_AT_low_pc, constants::DW_AT_ranges].iter().any(|attribute| entry.attr(*attribute).is_some());
        if !has_code || self.functions.len() >= MAX_FOUND {
            return;
        }
        let name = units.name(id.unit, entry);
        let Some(name) = asked.names.iter().find(|wanted| name == Some(**wanted)) else { return };
        let ranges = units.ranges(id.unit, entry).unwrap_or_default();
        let mut begins = ranges.iter().map(|range| FileAddress::new(range.begin));
        // Unless the entry is known, it is in the first range; what was moved away as unlikely comes later.
        if let Some(address) = begins.clone().find(|begin| Some(*begin) == asked.entry).or_else(|| begins.next()) {
            self.functions.push(DebugFunction { name, address, id });
        }
    }
}

/// Returns the fixed address of a variable.
fn static_address<'a>(units: &Units<'a>, unit: usize, entry: &Entry<'a>) -> Option<FileAddress> {
    let unit = units.units.get(unit)?;
    let mut bytes = entry.attr_value(constants::DW_AT_location)?.exprloc_value()?.0;
    let operation = Operation::parse(&mut bytes, unit.encoding()).ok()?;
    if !bytes.is_empty() {
        return None;
    }
    let address = match operation {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } => units.dwarf.address(unit, index).ok()?,
        _ => return None,
    };
    Some(FileAddress::new(address))
}

/// Returns the number in an attribute, unless it is an address.
pub fn number(entry: &Entry<'_>, attribute: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(attribute)? {
        AttributeValue::Sdata(value) => u64::try_from(value).ok(),
        value => value.udata_value(),
    }
}

/// How many typedefs and qualifiers to look through.
const MAX_QUALIFIERS: usize = 8;

impl<'a> Units<'a> {
    /// Returns the offsets of the wanted members, by name, if the type at `id` is a structure that has one of `names`.
    /// Also returns `None` if one of them has no clear offset.
    pub fn members(
        &self,
        id: EntryId,
        names: &[&str],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Option<BTreeMap<&'a str, u64>> {
        let (id, structure) = self.unqualified(id)?;
        if structure.tag() != constants::DW_TAG_structure_type || !names.contains(&self.name(id.unit, &structure)?) {
            return None;
        }
        let size = number(&structure, constants::DW_AT_byte_size)?;
        let mut members = BTreeMap::new();
        let mut is_clear = true;
        self.walk(id, 1, |depth, child| {
            if depth != 1 || child.tag() != constants::DW_TAG_member {
                return;
            }
            let name = self.name(id.unit, child);
            let Some(name) = name.filter(|name| is_wanted(name)) else { return };
            let offset = number(child, constants::DW_AT_data_member_location);
            is_clear &= offset.is_some_and(|offset| offset < size && members.insert(name, offset).is_none());
        })
        .ok()?;
        is_clear.then_some(members)
    }

    /// Returns whether the type at `id` is a number of `bytes` bytes.
    pub fn is_number(&self, id: EntryId, bytes: u64) -> bool {
        self.unqualified(id).is_some_and(|(_, of)| {
            of.tag() == constants::DW_TAG_base_type && number(&of, constants::DW_AT_byte_size) == Some(bytes)
        })
    }

    /// Returns a type without `typedef`, `const`, `volatile` and `_Atomic`.
    fn unqualified(&self, mut id: EntryId) -> Option<(EntryId, Entry<'a>)> {
        for _ in 0..MAX_QUALIFIERS {
            let entry = self.entry(id)?;
            let is_qualifier = matches!(
                entry.tag(),
                constants::DW_TAG_typedef
                    | constants::DW_TAG_const_type
                    | constants::DW_TAG_volatile_type
                    | constants::DW_TAG_atomic_type
            );
            if !is_qualifier {
                return Some((id, entry));
            }
            id = self.reference(id.unit, entry.attr_value(constants::DW_AT_type)?)?;
        }
        None
    }
}
