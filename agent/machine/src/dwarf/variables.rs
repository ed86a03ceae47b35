//! The variables in a function: its own, and those of the first copy of another function inlined in it.
//!
//! That copy is the first in the source, by the place of the call; compilers list copies in any order, and place them anywhere.

use gimli::{Range, constants};

use super::globals::number;
use super::location::{self, LocatedAt, Location, Sum};
use super::sections::DwarfError;
use super::units::{Entry, EntryId, Units};
use crate::elf::address::FileAddress;

/// How deep blocks and inlined functions may be nested.
const MAX_NESTING: usize = 128;
/// The most copies of the inlined function, and the most variables in a scope.
const MAX_COPIES: usize = 64;
/// The most entries of one location list.
const MAX_LOCATIONS: usize = 4_096;

/// Where a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableLocations {
    /// Its name, one of those asked for.
    pub name: &'static str,
    /// Where, and at which instructions.
    pub locations: Vec<LocatedAt>,
    /// Whether it is in one place wherever it is in scope, so even before it is assigned.
    pub always: bool,
}

impl VariableLocations {
    /// Returns where it is before the instruction at `address`.
    pub fn at(&self, address: FileAddress) -> Option<&Location> {
        self.locations
            .iter()
            .find(|own| (own.range.begin..own.range.end).contains(&address.get()))
            .map(|own| &own.location)
    }
}

/// The variables of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those of the function itself.
    pub own: Vec<VariableLocations>,
    /// Those of the first copy inlined in it.
    pub inlined: Vec<VariableLocations>,
}

/// A copy of the inlined function.
struct Copy {
    /// Line and column of the call.
    called_at: (u64, u64),
    ranges: Vec<Range>,
    variables: Vec<VariableLocations>,
}

/// What an entry is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Function,
    Copy(usize),
    Other,
}

/// Finds the variables called `names` of the function at `id`, and of the first copy of the function `inlined` in it. Fails if
/// there are too many entries.
pub fn variables(
    units: &Units<'_>,
    id: EntryId,
    inlined: &str,
    names: &[&'static str],
) -> Result<Variables, DwarfError> {
    let mut found = Variables::default();
    let (Some(unit), Some(function)) = (units.units.get(id.unit), units.entry(id)) else {
        return Ok(found);
    };
    let frame = function
        .attr_value(constants::DW_AT_frame_base)
        .and_then(|value| value.exprloc_value())
        .and_then(|expression| location::frame_base(expression, unit.encoding()));
    let own_ranges = units.ranges(id.unit, &function).unwrap_or_default();
    let mut copies: Vec<Copy> = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    units.walk(id, MAX_NESTING, |depth, entry| {
        scopes.truncate(depth);
        let inner = match (scopes.last().copied(), entry.tag()) {
            (None, _) => Scope::Function,
            (Some(scope), constants::DW_TAG_lexical_block) => scope,
            (Some(Scope::Function), constants::DW_TAG_inlined_subroutine)
                if copies.len() < MAX_COPIES && units.name(id.unit, entry) == Some(inlined) =>
            {
                copies.push(Copy {
                    called_at: (
                        number(entry, constants::DW_AT_call_line).unwrap_or(u64::MAX),
                        number(entry, constants::DW_AT_call_column).unwrap_or(u64::MAX),
                    ),
                    ranges: units.ranges(id.unit, entry).unwrap_or_default(),
                    variables: Vec::new(),
                });
                Scope::Copy(copies.len() - 1)
            }
            (Some(Scope::Function), constants::DW_TAG_variable) if found.own.len() < MAX_COPIES => {
                let found = &mut found.own;
                found.extend(variable(
                    units,
                    id.unit,
                    entry,
                    names,
                    &own_ranges,
                    frame.as_ref(),
                ));
                Scope::Other
            }
            (Some(Scope::Copy(index)), constants::DW_TAG_variable) => {
                let copy = copies.get_mut(index);
                if let Some(copy) = copy.filter(|copy| copy.variables.len() < MAX_COPIES) {
                    let found =
                        variable(units, id.unit, entry, names, &copy.ranges, frame.as_ref());
                    copy.variables.extend(found);
                }
                Scope::Other
            }
            _ => Scope::Other,
        };
        scopes.push(inner);
    })?;
    if let Some(first) = copies.into_iter().min_by_key(|copy| copy.called_at) {
        found.inlined = first.variables;
    }
    Ok(found)
}

fn variable<'a>(
    units: &Units<'a>,
    unit: usize,
    entry: &Entry<'a>,
    names: &[&'static str],
    scope: &[Range],
    frame: Option<&Sum>,
) -> Option<VariableLocations> {
    let name = units.name(unit, entry)?;
    let name = names.iter().find(|own| **own == name)?;
    let value = entry.attr_value(constants::DW_AT_location)?;
    let unit = units.units.get(unit)?;
    let parse = |expression| location::parse(expression, unit.encoding(), frame);
    let locations = match value.exprloc_value() {
        Some(expression) => {
            let location = parse(expression)?;
            let everywhere = scope.iter().map(|range| LocatedAt {
                range: *range,
                location: location.clone(),
            });
            everywhere.collect()
        }
        None => {
            let mut list = units.dwarf.attr_locations(unit, value).ok()??;
            std::iter::from_fn(|| list.next().ok().flatten())
                .take(MAX_LOCATIONS)
                .filter_map(|entry| {
                    Some(LocatedAt {
                        range: entry.range,
                        location: parse(entry.data)?,
                    })
                })
                .collect()
        }
    };
    Some(VariableLocations {
        name,
        locations,
        always: value.exprloc_value().is_some(),
    })
}
