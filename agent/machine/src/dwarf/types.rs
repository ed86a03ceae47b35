//! Types: structures with their members, and numbers.

use std::collections::BTreeMap;

use gimli::constants;

use super::globals::number;
use super::units::{Entry, EntryId, Units};

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
        if structure.tag() != constants::DW_TAG_structure_type
            || !names.contains(&self.name(id.unit, &structure)?)
        {
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
            let Some(name) = name.filter(|name| is_wanted(name)) else {
                return;
            };
            let offset = number(child, constants::DW_AT_data_member_location);
            is_clear &= offset
                .is_some_and(|offset| offset < size && members.insert(name, offset).is_none());
        })
        .ok()?;
        is_clear.then_some(members)
    }

    /// Returns whether the type at `id` is a number of `bytes` bytes.
    pub fn is_number(&self, id: EntryId, bytes: u64) -> bool {
        self.unqualified(id).is_some_and(|(_, of)| {
            of.tag() == constants::DW_TAG_base_type
                && number(&of, constants::DW_AT_byte_size) == Some(bytes)
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
