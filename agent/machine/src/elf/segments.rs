//! The segments that the loader maps, the bytes at their addresses, and what the loader will store there: pointers to
//! the file's own parts, and to functions of shared libraries. That comes from the dynamic segment, which the loader
//! itself reads and which remains if section headers are removed.
//!
//! Before anything relies on it, what the file declares is checked: a small file can declare many segments and sections
//! over the same bytes, and make its reader search petabytes. In an honest file each byte belongs to at most one
//! segment and one section.

use std::collections::HashMap;
use std::rc::Rc;

use evictscope_model::{FileAddress, FileOffset};
use object::elf::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_STRTAB, DT_SYMTAB, Dyn64, FileHeader64, PF_W, PF_X, PT_GNU_RELRO,
    PT_LOAD, Rela64, SHN_UNDEF, SHT_NOBITS, Sym64,
};
use object::pod::slice_from_bytes;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};
use object::{Endianness, Object as _, ObjectSection as _};

use crate::isa::{Architecture, Relocation};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum ElfError {
    #[error("not a 64-bit ELF file; name an executable")]
    NotElf,
    #[error("the ELF file is damaged, or a part of it is missing: copy or install it again")]
    Damaged,
    /// Another machine or kind of file.
    #[error("{0}; evictscope understands x86-64 and aarch64 executables only")]
    Kind(&'static str),
    #[error("the file is truncated: parts that it declares are missing")]
    CutOff,
    /// Something that no linker produces.
    #[error("the file has {0}: it is damaged or malicious")]
    Unreasonable(&'static str),
    #[error("the file has no executable segment")]
    NoCode,
}

/// Drops the parser's reason: it helps people who write ELF files, not people who name one.
impl From<object::Error> for ElfError {
    fn from(_: object::Error) -> Self {
        Self::Damaged
    }
}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Virtual address of its first byte.
    pub address: FileAddress,
    /// Bytes in memory.
    memory_size: u64,
    /// Where its content begins in the file.
    file_offset: u64,
    /// Bytes in the file; the process finds zeros after them.
    file_size: u64,
    pub is_code: bool,
    pub is_writable: bool,
}

/// All loadable segments of a file.
#[derive(Default)]
pub struct Segments<'data> {
    data: &'data [u8],
    segments: Vec<Segment>,
}

impl<'data> Segments<'data> {
    pub fn read(file: &ElfFile64<'data, Endianness>) -> Self {
        let endian = file.endian();
        let segments = file.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_LOAD);
        Self {
            data: file.data(),
            segments: segments
                .map(|header| Segment {
                    address: FileAddress::new(header.p_vaddr(endian)),
                    memory_size: header.p_memsz(endian),
                    file_offset: header.p_offset(endian),
                    file_size: header.p_filesz(endian),
                    is_code: header.p_flags(endian) & PF_X != 0,
                    is_writable: header.p_flags(endian) & PF_W != 0,
                })
                .collect(),
        }
    }

    /// Makes one segment of code that begins at `address`.
    pub fn of_code(code: &'data [u8], address: FileAddress) -> Self {
        let size = code.len() as u64;
        Self {
            data: code,
            segments: vec![Segment {
                address,
                memory_size: size,
                file_offset: 0,
                file_size: size,
                is_code: true,
                is_writable: false,
            }],
        }
    }

    pub fn has_code(&self) -> bool {
        self.segments.iter().any(|segment| segment.is_code)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Segment, &'data [u8])> + '_ {
        self.segments.iter().filter_map(|segment| Some((segment, self.content(segment)?)))
    }

    /// Finds the segment that covers an address.
    pub fn at(&self, address: FileAddress) -> Option<&Segment> {
        self.segments.iter().find(|segment| {
            let distance = address.checked_sub(segment.address);
            distance.is_some_and(|distance| distance < segment.memory_size)
        })
    }

    /// Returns the bytes from `address` to the end of its segment.
    pub fn bytes_at(&self, address: FileAddress) -> Option<&'data [u8]> {
        let segment = self.at(address)?;
        let skip = usize::try_from(address.checked_sub(segment.address)?).ok()?;
        self.content(segment)?.get(skip..)
    }

    /// Returns the file offset of an address, if the file holds that byte.
    pub fn file_offset(&self, address: FileAddress) -> Option<FileOffset> {
        let segment = self.at(address)?;
        let distance = address.checked_sub(segment.address)?;
        let offset = segment.file_offset.checked_add(distance)?;
        (distance < segment.file_size).then_some(FileOffset::new(offset))
    }

    /// Returns the address of each code segment, and where it begins and ends in the file.
    pub fn code(&self) -> Vec<(FileAddress, u64, u64)> {
        let code = self.segments.iter().filter(|segment| segment.is_code);
        let end = |segment: &Segment| segment.file_offset.saturating_add(segment.file_size);
        code.map(|segment| (segment.address, segment.file_offset, end(segment))).collect()
    }

    fn content(&self, segment: &Segment) -> Option<&'data [u8]> {
        let start = usize::try_from(segment.file_offset).ok()?;
        let end = start.checked_add(usize::try_from(segment.file_size).ok()?)?;
        self.data.get(start..end.min(self.data.len()))
    }
}

/// The most program headers; executables have about a dozen.
const MAX_SEGMENTS: usize = 128;
/// The most sections; executables have about forty.
const MAX_SECTIONS: usize = 4096;
/// The most bytes of section names; a lookup searches all of them.
const MAX_SECTION_NAMES: u64 = 1 << 20;
/// Where user space ends on x86-64 with four levels of page tables. On aarch64 it may end elsewhere, and all linkers
/// stay far below.
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
    fit(data, loaded().map(|segment| (segment.p_offset(endian), segment.p_filesz(endian))), "segments that overlap")?;

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
    fit(data, stored.map(|section| (section.sh_offset(endian), section.sh_size(endian))), "sections that overlap")
}

/// Checks that all these ranges lie in the file, and that the sum of their sizes is at most one and
/// a half times the file's. (Linkers map the same page into two segments.)
fn fit(data: &[u8], ranges: impl Iterator<Item = (u64, u64)>, otherwise: &'static str) -> Result<(), ElfError> {
    let file = data.len() as u64;
    let mut sum = 0_u64;
    for (offset, size) in ranges {
        if size != 0 && offset.checked_add(size).is_none_or(|end| end > file) {
            return Err(ElfError::CutOff);
        }
        sum = sum.saturating_add(size);
    }
    if sum > file + file / 2 { Err(ElfError::Unreasonable(otherwise)) } else { Ok(()) }
}

/// The most relocations to read from one table; executables of some megabytes have some ten thousand.
const MAX_RELOCATIONS: usize = 500_000;
/// The longest name of an imported function to read, in bytes.
const MAX_NAME: usize = 64;

/// What the loader will store, by the address at which it stores it.
#[derive(Default)]
pub struct Relocations<'data> {
    /// Pointers to parts of the file, before the loader adds the load bias.
    pub pointers: HashMap<FileAddress, FileAddress>,
    /// Those that the process cannot change, and addresses of the file's own symbols, in slots from which code loads.
    pub linked: Rc<HashMap<FileAddress, FileAddress>>,
    /// The names of functions of shared libraries.
    pub imports: HashMap<FileAddress, &'data str>,
}

impl<'data> Relocations<'data> {
    /// Reads them. `bytes_at` returns the bytes from an address to the end of its segment.
    pub fn read(
        file: &ElfFile64<'data, Endianness>,
        architecture: Architecture,
        bytes_at: impl Fn(FileAddress) -> Option<&'data [u8]>,
    ) -> Self {
        let endian = file.endian();
        let dynamic = file.elf_program_headers().iter().find_map(|header| header.dynamic(endian, file.data()).ok()?);
        let dynamic: &[Dyn64<Endianness>] = dynamic.unwrap_or_default();
        let entry = |tag| Some(dynamic.iter().find(|entry| entry.tag(endian) == tag)?.val(endian));
        let table = |tag| bytes_at(FileAddress::new(entry(tag)?));
        let symbols = table(DT_SYMTAB).and_then(|symbols| {
            let count = symbols.len() / size_of::<Sym64<Endianness>>();
            Some(slice_from_bytes::<Sym64<Endianness>>(symbols, count).ok()?.0)
        });
        let names = table(DT_STRTAB).unwrap_or_default();
        let name = |symbol: &Sym64<Endianness>| {
            let text = names.get(usize::try_from(symbol.st_name(endian)).ok()?..)?;
            let end = memchr::memchr(0, text.get(..MAX_NAME).unwrap_or(text))?;
            std::str::from_utf8(text.get(..end)?).ok()
        };
        let fixed = file.elf_program_headers().iter().find(|header| header.p_type(endian) == PT_GNU_RELRO);
        let fixed = fixed.map(|header| (header.p_vaddr(endian), header.p_memsz(endian)));
        let is_fixed = |at: FileAddress| fixed.is_some_and(|(begin, size)| at.get().wrapping_sub(begin) < size);
        let mut found = Self::default();
        let mut linked = HashMap::new();
        for (tag, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let bytes = table(tag).unwrap_or_default();
            let size = usize::try_from(entry(size).unwrap_or(0)).unwrap_or(usize::MAX);
            let count = size.min(bytes.len()) / size_of::<Rela64<Endianness>>();
            let relocations = slice_from_bytes::<Rela64<Endianness>>(bytes, count);
            for relocation in relocations.map_or(&[][..], |(relocations, _)| relocations).iter().take(MAX_RELOCATIONS) {
                let at = FileAddress::new(relocation.r_offset.get(endian));
                let symbol = || {
                    let index = usize::try_from(relocation.r_sym(endian, false)).ok()?;
                    symbols?.get(index)
                };
                let is_import = |symbol: &&Sym64<Endianness>| symbol.st_shndx(endian) == SHN_UNDEF;
                let base = match architecture.relocation(relocation.r_type(endian, false)) {
                    Some(Relocation::Relative) => Some(0),
                    Some(Relocation::Symbol) => {
                        symbol().filter(|symbol| !is_import(symbol)).map(|symbol| symbol.st_value(endian))
                    }
                    Some(Relocation::Import) => {
                        let own = symbol().filter(|symbol| !is_import(symbol) && symbol.st_value(endian) != 0);
                        linked.extend(own.map(|symbol| (at, FileAddress::new(symbol.st_value(endian)))));
                        let imported = symbol().filter(is_import).and_then(name);
                        found.imports.extend(imported.map(|name| (at, name)));
                        None
                    }
                    None => None,
                };
                let addend = relocation.r_addend.get(endian);
                let pointer = base.map(|base| FileAddress::new(base.wrapping_add_signed(addend)));
                linked.extend(pointer.filter(|_| is_fixed(at)).map(|pointer| (at, pointer)));
                found.pointers.extend(pointer.map(|pointer| (at, pointer)));
            }
        }
        let has = |name| file.section_by_name(name).is_some();
        // A linker that leaves nothing to do for a loader has stored them itself.
        if let Some(slots) = file.section_by_name(".got")
            && dynamic.is_empty()
            && ![".rela.dyn", ".rela.plt"].into_iter().any(has)
        {
            let addresses = (slots.address()..).step_by(8).map(FileAddress::new);
            let words = slots.data().unwrap_or_default().as_chunks::<8>().0.iter().take(MAX_RELOCATIONS);
            linked.extend(addresses.zip(words.map(|word| FileAddress::new(u64::from_le_bytes(*word)))));
        }
        found.linked = Rc::new(linked);
        found
    }
}
