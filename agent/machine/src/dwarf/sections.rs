//! The sections that hold DWARF, decompressed if a linker compressed them.
//!
//! What an entry says through others: its name and type, if it is an instance of an entry that is elsewhere, even in
//! another unit (as link-time optimisation leaves them).

use std::borrow::Cow;
use std::io::Read;

use gimli::{
    AttributeValue, DwAt, Dwarf, EndianSlice, LittleEndian, Section as _, SectionId, Unit,
    constants,
};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object as _, ObjectSection as _};

use super::units::{Entry, EntryId, Units};

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
pub struct Sections<'data>(Vec<(SectionId, Cow<'data, [u8]>)>);

impl<'data> Sections<'data> {
    /// Reads the sections of the ELF file whose whole content is `data`; `None` if it has no `.debug_info`. Fails if
    /// the file is cut off or a section cannot be decompressed.
    pub fn read(data: &'data [u8]) -> Result<Option<Self>, DwarfError> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        if file.section_by_name(SectionId::DebugInfo.name()).is_none() {
            return Ok(None);
        }
        let mut left = MAX_DECOMPRESSED;
        let mut sections = Vec::new();
        for id in WANTED {
            let Some(section) = file.section_by_name(id.name()) else {
                continue;
            };
            let section = section.compressed_data()?;
            let bytes = match section.format {
                CompressionFormat::None => Cow::Borrowed(section.data),
                CompressionFormat::Zlib => {
                    let decoder = flate2::read::ZlibDecoder::new(section.data);
                    Cow::Owned(inflate(decoder, section.uncompressed_size, &mut left)?)
                }
                CompressionFormat::Zstandard => {
                    let decoder = ruzstd::decoding::StreamingDecoder::new(section.data)
                        .map_err(|_| DwarfError::Compression)?;
                    Cow::Owned(inflate(decoder, section.uncompressed_size, &mut left)?)
                }
                _ => return Err(DwarfError::Compression),
            };
            sections.push((id, bytes));
        }
        Ok(Some(Self(sections)))
    }

    /// Returns the sections as gimli wants them. A missing one is empty.
    pub fn dwarf(&self) -> Dwarf<Reader<'_>> {
        let section = |id: SectionId| -> Result<Reader<'_>, std::convert::Infallible> {
            let found = self.0.iter().find(|(own, _)| *own == id);
            let bytes = found.map_or(&[][..], |(_, bytes)| bytes);
            Ok(EndianSlice::new(bytes, LittleEndian))
        };
        match Dwarf::load(section) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }
}

/// Returns exactly the `size` bytes that the section's header promises, and takes them off `left`: a short compressed
/// stream can decompress to any size.
fn inflate(decoder: impl Read, size: u64, left: &mut u64) -> Result<Vec<u8>, DwarfError> {
    *left = left.checked_sub(size).ok_or(DwarfError::TooLarge)?;
    let mut bytes = Vec::new();
    decoder
        .take(size)
        .read_to_end(&mut bytes)
        .map_err(|_| DwarfError::Compression)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(DwarfError::Compression),
    }
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
