//! The sections that hold DWARF, decompressed if a linker compressed them; the units of `.debug_info` and their
//! entries.
//!
//! What gimli offers to make a unit also reads its line number program, and an abbreviation table again for each unit
//! that names it. This does neither, so the work grows with the size of the sections and not with what a hostile file
//! makes of it; every entry looked at is counted.
//!
//! An entry can be an instance of another, even of one in another unit (as link-time optimisation leaves them): that
//! has its name and type.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebuggingInformationEntry, DwAt, Dwarf, EndianSlice,
    LittleEndian, Range, Section as _, SectionId, Unit, UnitHeader, UnitOffset, UnitType, constants,
};
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{CompressionFormat, Endianness, Object as _, ObjectSection as _};

use crate::isa::Architecture;

/// The most bytes that all compressed sections together may decompress to.
const MAX_DECOMPRESSED: u64 = 256 << 20;
/// The sections that are read. `.debug_line` and the like are not.
const WANTED: [SectionId; 10] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLineStr,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Why debug information cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DwarfError {
    /// Cut off or inconsistent.
    #[error("the debug information cannot be read")]
    Elf(#[from] object::Error),
    /// Neither zlib nor zstd, or damaged.
    #[error("a section of the debug information cannot be decompressed")]
    Compression,
    /// More than will be read.
    #[error("there is more debug information than any program should have")]
    TooLarge,
}

/// How gimli reads bytes here.
pub type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The bytes of the sections.
pub struct Sections<'data> {
    architecture: Architecture,
    sections: Vec<(SectionId, Cow<'data, [u8]>)>,
}

impl<'data> Sections<'data> {
    /// Reads the sections of the ELF file whose whole content is `data`; `None` if it has no `.debug_info`, or its
    /// processor is not known. Fails if
    /// the file is cut off or a section cannot be decompressed.
    pub fn read(data: &'data [u8]) -> Result<Option<Self>, DwarfError> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        let architecture = Architecture::of_machine(file.elf_header().e_machine(file.endian()));
        let has_entries = file.section_by_name(SectionId::DebugInfo.name()).is_some();
        let Some(architecture) = architecture.filter(|_| has_entries) else { return Ok(None) };
        let mut left = MAX_DECOMPRESSED;
        let mut sections = Vec::new();
        for id in WANTED {
            let Some(section) = file.section_by_name(id.name()) else { continue };
            let section = section.compressed_data()?;
            let bytes = match section.format {
                CompressionFormat::None => Cow::Borrowed(section.data),
                CompressionFormat::Zlib => {
                    let decoder = flate2::read::ZlibDecoder::new(section.data);
                    Cow::Owned(inflate(decoder, section.uncompressed_size, &mut left)?)
                }
                CompressionFormat::Zstandard => {
                    let decoder =
                        ruzstd::decoding::StreamingDecoder::new(section.data).map_err(|_| DwarfError::Compression)?;
                    Cow::Owned(inflate(decoder, section.uncompressed_size, &mut left)?)
                }
                _ => return Err(DwarfError::Compression),
            };
            sections.push((id, bytes));
        }
        Ok(Some(Self { architecture, sections }))
    }

    /// Returns the sections as gimli wants them. A missing one is empty.
    fn dwarf(&self) -> Dwarf<Reader<'_>> {
        let section = |id: SectionId| -> Result<Reader<'_>, std::convert::Infallible> {
            let bytes = self.sections.iter().find(|(wanted, _)| *wanted == id).map_or(&[][..], |(_, bytes)| bytes);
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        let Ok(dwarf) = Dwarf::load(section);
        dwarf
    }
}

/// Returns exactly the `size` bytes that the section's header promises, and takes them off `left`: a short compressed
/// stream can decompress to any size.
fn inflate(decoder: impl Read, size: u64, left: &mut u64) -> Result<Vec<u8>, DwarfError> {
    *left = left.checked_sub(size).ok_or(DwarfError::TooLarge)?;
    let mut bytes = Vec::new();
    decoder.take(size).read_to_end(&mut bytes).map_err(|_| DwarfError::Compression)?;
    if bytes.len() as u64 == size { Ok(bytes) } else { Err(DwarfError::Compression) }
}

/// The most units in one file.
const MAX_UNITS: usize = 100_000;
/// The most entries and attributes to look at, in all. An executable of some megabytes has about 2 million.
const MAX_STEPS: u64 = 60_000_000;
/// The most address ranges of one entry.
const MAX_RANGES: usize = 4_096;
/// The most bytes in all abbreviation tables, which are kept parsed. An executable of some megabytes has 200 kB.
const MAX_ABBREVIATIONS: usize = 4 << 20;
/// How many bytes of text in an entry count as much as an attribute.
const BYTES_PER_STEP: usize = 16;

pub type Entry<'a> = DebuggingInformationEntry<Reader<'a>>;

/// Where an entry is: the index of its unit, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    /// Index in [`Units::units`].
    pub unit: usize,
    /// Its offset.
    pub offset: UnitOffset,
}

/// All units of a file, in their order.
pub struct Units<'a> {
    /// What the code is for.
    pub architecture: Architecture,
    /// The sections.
    pub dwarf: Dwarf<Reader<'a>>,
    /// The units that can be read.
    pub units: Vec<Unit<Reader<'a>>>,
    steps: Cell<u64>,
}

impl<'a> Units<'a> {
    /// Reads the headers and first entries of all units. Fails if there are too many.
    pub fn read(sections: &'a Sections<'_>) -> Result<Self, DwarfError> {
        let dwarf = sections.dwarf();
        if dwarf.debug_abbrev.reader().len() > MAX_ABBREVIATIONS {
            return Err(DwarfError::TooLarge);
        }
        let mut headers = Vec::new();
        let mut found = dwarf.units();
        // A header that cannot be read ends the list.
        while let Ok(Some(header)) = found.next() {
            if headers.len() >= MAX_UNITS {
                return Err(DwarfError::TooLarge);
            }
            headers.push(header);
        }
        let tables = abbreviations(&dwarf, &headers);
        let mut read = Self { architecture: sections.architecture, dwarf, units: Vec::new(), steps: Cell::new(0) };
        for header in headers {
            // Type units hold no code and no variables; what skeletons point to is not in this file.
            if !matches!(header.type_(), UnitType::Compilation | UnitType::Partial) {
                continue;
            }
            let Some(table) = tables.get(&header.debug_abbrev_offset().0) else { continue };
            if let Some(unit) = read.unit(header, table.clone()) {
                read.units.push(unit);
            }
        }
        Ok(read)
    }

    /// Returns a unit with what its first entry says about where its indexed values are.
    fn unit(&self, header: UnitHeader<Reader<'a>>, abbreviations: Arc<Abbreviations>) -> Option<Unit<Reader<'a>>> {
        let root = header.entry(&abbreviations, header.root_offset()).ok()?;
        let encoding = header.encoding();
        let mut unit = Unit {
            str_offsets_base: gimli::DebugStrOffsetsBase::default_for_encoding_and_file(encoding, self.dwarf.file_type),
            addr_base: gimli::DebugAddrBase(0),
            loclists_base: gimli::DebugLocListsBase::default_for_encoding_and_file(encoding, self.dwarf.file_type),
            rnglists_base: gimli::DebugRngListsBase::default_for_encoding_and_file(encoding, self.dwarf.file_type),
            name: None,
            comp_dir: None,
            low_pc: 0,
            line_program: None,
            dwo_id: None,
            header,
            abbreviations,
        };
        for attribute in root.attrs() {
            match attribute.value() {
                AttributeValue::DebugStrOffsetsBase(base) => unit.str_offsets_base = base,
                AttributeValue::DebugAddrBase(base) => unit.addr_base = base,
                AttributeValue::DebugLocListsBase(base) => unit.loclists_base = base,
                AttributeValue::DebugRngListsBase(base) => unit.rnglists_base = base,
                _ => {}
            }
        }
        if let Some(low_pc) = root.attr_value(constants::DW_AT_low_pc) {
            unit.low_pc = self.dwarf.attr_address(&unit, low_pc).ok()??;
        }
        Some(unit)
    }

    /// Counts an entry with its attributes. Fails if that is too many.
    pub fn count(&self, attributes: usize) -> Result<(), DwarfError> {
        let steps = self.steps.get() + 1 + attributes as u64;
        self.steps.set(steps);
        if steps > MAX_STEPS { Err(DwarfError::TooLarge) } else { Ok(()) }
    }

    /// Returns the entry at `id`, if there is one.
    pub fn entry(&self, id: EntryId) -> Option<Entry<'a>> {
        let entry = self.units.get(id.unit)?.entry(id.offset).ok()?;
        // An entry that many refer to is read again for each, with its text.
        let text = entry.attrs().iter().map(|attribute| match attribute.value() {
            AttributeValue::String(text) => text.len() / BYTES_PER_STEP,
            _ => 0,
        });
        self.count(entry.attrs().len() + text.sum::<usize>()).ok()?;
        Some(entry)
    }

    /// Shows `visit` the entry at `id` and all entries inside it, each with its depth (0 for the entry itself), down to
    /// `deepest`. Stops at what cannot be read. Fails if there are too many entries.
    pub fn walk(
        &self,
        id: EntryId,
        deepest: usize,
        mut visit: impl FnMut(usize, &Entry<'a>),
    ) -> Result<(), DwarfError> {
        let Some(unit) = self.units.get(id.unit) else { return Ok(()) };
        let Ok(mut entries) = unit.entries_raw(Some(id.offset)) else { return Ok(()) };
        let mut entry = Entry::null();
        let mut is_first = true;
        while !entries.is_empty() {
            // Below depth 0 is what surrounds the entry.
            let Ok(depth) = usize::try_from(entries.next_depth()) else { break };
            if depth == 0 && !is_first {
                break;
            }
            is_first = false;
            let Ok(is_entry) = entries.read_entry(&mut entry) else { break };
            self.count(entry.attrs().len())?;
            if is_entry && depth <= deepest {
                visit(depth, &entry);
            }
        }
        Ok(())
    }

    /// Returns the code that belongs to an entry. (gimli's `die_ranges` adds address and size, which
    /// overflows in a damaged file.)
    pub fn ranges(&self, unit: usize, entry: &Entry<'a>) -> Option<Vec<Range>> {
        let unit = self.units.get(unit)?;
        if let Some(list) = entry.attr_value(constants::DW_AT_ranges) {
            let mut ranges = self.dwarf.attr_ranges(unit, list).ok()??;
            return Some(std::iter::from_fn(|| ranges.next().ok().flatten()).take(MAX_RANGES).collect());
        }
        let address = |value| self.dwarf.attr_address(unit, value).ok()?;
        let begin = address(entry.attr_value(constants::DW_AT_low_pc)?)?;
        let end = match entry.attr_value(constants::DW_AT_high_pc)? {
            AttributeValue::Udata(size) => begin.checked_add(size)?,
            end => address(end)?,
        };
        Some(vec![Range { begin, end }])
    }
}

/// Parses the abbreviation tables of all units. A table ends where the next begins, so overlapping tables are cut off.
fn abbreviations(dwarf: &Dwarf<Reader<'_>>, headers: &[UnitHeader<Reader<'_>>]) -> BTreeMap<usize, Arc<Abbreviations>> {
    let section = dwarf.debug_abbrev.reader().slice();
    let mut offsets: Vec<usize> = headers.iter().map(|header| header.debug_abbrev_offset().0).collect();
    offsets.push(section.len());
    offsets.sort_unstable();
    offsets.dedup();
    offsets
        .windows(2)
        .filter_map(|pair| {
            let bytes = section.get(*pair.first()?..*pair.last()?)?;
            let table = DebugAbbrev::new(bytes, LittleEndian).abbreviations(DebugAbbrevOffset(0));
            Some((*pair.first()?, Arc::new(table.ok()?)))
        })
        .collect()
}

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
                let unit = self.units.partition_point(|unit| unit.header.offset().0 <= offset.0).checked_sub(1)?;
                let header = &self.units.get(unit)?.header;
                Some(EntryId { unit, offset: offset.to_unit_offset(header)? })
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
            AttributeValue::DebugLineStrRef(offset) => (self.dwarf.debug_line_str.reader(), offset.0),
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
