//! What an entry says through others: its name and type, if it is an instance of an entry that is elsewhere, even in
//! another unit (as link-time optimisation leaves them).

use gimli::{AttributeValue, DwAt, Section as _, Unit, constants};

use super::sections::Reader;
use super::units::{Entry, EntryId, Units};

/// How many references to follow from one entry to the one that has its name.
const MAX_ORIGINS: usize = 8;
/// The longest name to look at; longer names are never looked for.
const MAX_NAME: usize = 64;

impl<'a> Units<'a> {
    /// Returns the entry that an attribute of an entry in `unit` refers to, there or in another unit.
    pub fn reference(&self, unit: usize, value: AttributeValue<Reader<'a>>) -> Option<EntryId> {
        match value {
            AttributeValue::UnitRef(offset) => Some(EntryId { unit, offset }),
            AttributeValue::DebugInfoRef(offset) => {
                let after = self
                    .units
                    .partition_point(|unit| unit.header.offset().0 <= offset.0);
                let unit = after.checked_sub(1)?;
                let header = &self.units.get(unit)?.header;
                let offset = offset.to_unit_offset(header)?;
                Some(EntryId { unit, offset })
            }
            _ => None,
        }
    }

    /// Returns the name of an entry, its own or that of the entry it is an instance of.
    pub fn name(&self, unit: usize, entry: &Entry<'a>) -> Option<&'a str> {
        let (unit, name) = self.inherited(unit, entry, constants::DW_AT_name)?;
        self.text(self.units.get(unit)?, name)
    }

    /// Returns a name, without searching for its end beyond `MAX_NAME`.
    fn text(&self, unit: &Unit<Reader<'a>>, value: AttributeValue<Reader<'a>>) -> Option<&'a str> {
        let (section, offset) = match value {
            AttributeValue::String(text) => {
                let text = text.slice();
                return (text.len() <= MAX_NAME).then(|| std::str::from_utf8(text).ok())?;
            }
            AttributeValue::DebugStrRef(offset) => (self.dwarf.debug_str.reader(), offset.0),
            AttributeValue::DebugLineStrRef(offset) => {
                (self.dwarf.debug_line_str.reader(), offset.0)
            }
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offset = self.dwarf.string_offset(unit, index).ok()?;
                (self.dwarf.debug_str.reader(), offset.0)
            }
            _ => return None,
        };
        let bytes = section.slice().get(offset..)?;
        let bytes = bytes.get(..MAX_NAME).unwrap_or(bytes);
        let end = memchr::memchr(0, bytes)?;
        std::str::from_utf8(bytes.get(..end)?).ok()
    }

    /// Returns the type of an entry, its own or that of the entry it is an instance of.
    pub fn type_of(&self, unit: usize, entry: &Entry<'a>) -> Option<EntryId> {
        let (unit, of) = self.inherited(unit, entry, constants::DW_AT_type)?;
        self.reference(unit, of)
    }

    /// Returns an attribute of an entry or of the one it is an instance of, and the unit that has it.
    fn inherited(
        &self,
        mut unit: usize,
        entry: &Entry<'a>,
        attribute: DwAt,
    ) -> Option<(usize, AttributeValue<Reader<'a>>)> {
        let mut entry = entry.clone();
        for _ in 0..MAX_ORIGINS {
            if let Some(value) = entry.attr_value(attribute) {
                return Some((unit, value));
            }
            let origin = entry
                .attr_value(constants::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(constants::DW_AT_specification))?;
            let origin = self.reference(unit, origin)?;
            entry = self.entry(origin)?;
            unit = origin.unit;
        }
        None
    }
}
