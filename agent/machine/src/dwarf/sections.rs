//! The sections that hold DWARF, decompressed if a linker compressed them.

use std::borrow::Cow;
use std::io::Read;

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::read::elf::ElfFile64;
use object::{CompressionFormat, Endianness, Object as _, ObjectSection as _};

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
                    let decoder =
                        ruzstd::decoding::StreamingDecoder::new(section.data).map_err(|_| DwarfError::Compression)?;
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
    decoder.take(size).read_to_end(&mut bytes).map_err(|_| DwarfError::Compression)?;
    match bytes.len() as u64 == size {
        true => Ok(bytes),
        false => Err(DwarfError::Compression),
    }
}
