//! Reads what the debug information of a server says, independently of the agent.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Context as _;
use gimli::{AttributeValue, EndianSlice, LittleEndian, Reader as _};
use object::{Object as _, ObjectSection as _};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What the type of the global `server` is called, in Redis and in Valkey.
const NAMES: [&[u8]; 2] = [b"redisServer", b"valkeyServer"];

/// Returns the offset of each member of the type of the global `server`, by name; `None` without debug information.
pub fn server_members(data: &[u8]) -> anyhow::Result<Option<BTreeMap<String, u64>>> {
    let file = object::File::parse(data)?;
    if file.section_by_name(".debug_info").is_none() {
        return Ok(None);
    }
    let load = |id: gimli::SectionId| match file.section_by_name(id.name()) {
        Some(section) => section.uncompressed_data(),
        None => Ok(Cow::Borrowed(&[][..])),
    };
    let sections = gimli::DwarfSections::load(load)?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            let declared = entry.attr(gimli::DW_AT_declaration).is_some();
            if entry.tag() != gimli::DW_TAG_structure_type || declared {
                continue;
            }
            let name = name(&dwarf, &unit, entry)?;
            if NAMES.iter().any(|server| name.as_deref() == Some(server)) {
                let offset = entry.offset();
                return members(&dwarf, &unit, offset).map(Some);
            }
        }
    }
    Ok(None)
}

fn name(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &gimli::Unit<Slice<'_>>,
    entry: &gimli::DebuggingInformationEntry<Slice<'_>>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(value) = entry.attr_value(gimli::DW_AT_name) else {
        return Ok(None);
    };
    Ok(Some(dwarf.attr_string(unit, value)?.to_slice()?.into_owned()))
}

fn members(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &gimli::Unit<Slice<'_>>,
    structure: gimli::UnitOffset,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut members = BTreeMap::new();
    let mut tree = unit.entries_tree(Some(structure))?;
    let mut children = tree.root()?.children();
    while let Some(child) = children.next()? {
        let entry = child.entry();
        if entry.tag() != gimli::DW_TAG_member {
            continue;
        }
        let location = entry.attr_value(gimli::DW_AT_data_member_location);
        let offset = location.as_ref().and_then(AttributeValue::udata_value);
        if let (Some(name), Some(offset)) = (name(dwarf, unit, entry)?, offset) {
            members.insert(String::from_utf8(name).context("name of a member")?, offset);
        }
    }
    Ok(members)
}
