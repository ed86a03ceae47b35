//! Checks what an ELF file declares, before anything relies on it.
//!
//! A small file can declare many segments and sections over the same bytes, and make its reader
//! search petabytes. In an honest file each byte belongs to at most one segment and one section.

use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD, SHT_NOBITS};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};

use super::error::ElfError;

/// The most program headers; executables have about a dozen.
const MAX_SEGMENTS: usize = 128;
/// The most sections; executables have about forty.
const MAX_SECTIONS: usize = 4096;
/// The most bytes of section names; a lookup searches all of them.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// Where user space ends, on x86-64 with four levels of page tables.
const USER_SPACE: u64 = 1 << 47;

/// Checks the segments and sections that `data` declares. Fails if there are too many of them, or
/// they overlap or lie outside the file.
pub fn check(data: &[u8]) -> Result<(), ElfError> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?;
    if segments.len() > MAX_SEGMENTS {
        return Err(ElfError::Unreasonable("too many segments"));
    }
    let loaded = || (segments.iter()).filter(|segment| segment.p_type(endian) == PT_LOAD);
    for segment in loaded() {
        let size = segment.p_memsz(endian);
        let end = segment.p_vaddr(endian).checked_add(size);
        if segment.p_filesz(endian) > size || end.is_none_or(|end| end > USER_SPACE) {
            return Err(ElfError::Unreasonable("a segment that cannot be loaded"));
        }
    }
    fit(
        data,
        loaded().map(|segment| (segment.p_offset(endian), segment.p_filesz(endian))),
        "segments that overlap",
    )?;

    let sections = header.section_headers(endian, data)?;
    if sections.len() > MAX_SECTIONS {
        return Err(ElfError::Unreasonable("too many sections"));
    }
    // A file without sections has no section names.
    let names = header.shstrndx(endian, data).ok();
    let names = names.and_then(|names| sections.get(usize::try_from(names).ok()?));
    if names.is_some_and(|names| names.sh_size(endian) > MAX_SECTION_NAMES) {
        return Err(ElfError::Unreasonable("too many section names"));
    }
    let stored = (sections.iter()).filter(|section| section.sh_type(endian) != SHT_NOBITS);
    fit(
        data,
        stored.map(|section| (section.sh_offset(endian), section.sh_size(endian))),
        "sections that overlap",
    )
}

/// Checks that all these ranges lie in the file, and that the sum of their sizes is at most one and
/// a half times the file's. (Linkers map the same page into two segments.)
fn fit(
    data: &[u8],
    ranges: impl Iterator<Item = (u64, u64)>,
    otherwise: &'static str,
) -> Result<(), ElfError> {
    let file = data.len() as u64;
    let mut sum = 0_u64;
    for (offset, size) in ranges {
        if size != 0 && offset.checked_add(size).is_none_or(|end| end > file) {
            return Err(ElfError::CutOff);
        }
        sum = sum.saturating_add(size);
    }
    match sum > file + file / 2 {
        true => Err(ElfError::Unreasonable(otherwise)),
        false => Ok(()),
    }
}
