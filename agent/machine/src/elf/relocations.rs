//! What the loader will store: pointers to the file's own parts, and to functions of shared libraries. This comes from
//! the dynamic segment, which the loader itself reads and which remains if section headers are removed.

use std::collections::HashMap;

use object::Endianness;
use object::elf::{
    DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_STRTAB, DT_SYMTAB, Dyn64, R_X86_64_64,
    R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, Rela64, SHN_UNDEF, Sym64,
};
use object::pod::slice_from_bytes;
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _, Sym as _};

use super::address::FileAddress;

/// The most relocations to read from one table; executables of some megabytes have some ten thousand.
const MAX_RELOCATIONS: usize = 500_000;
/// The longest name of an imported function to read, in bytes.
const MAX_NAME: usize = 64;

/// What the loader will store, by the address at which it stores it.
#[derive(Default)]
pub struct Relocations<'data> {
    /// Pointers to parts of the file, before the loader adds the load bias.
    pub pointers: HashMap<FileAddress, FileAddress>,
    /// The names of functions of shared libraries.
    pub imports: HashMap<FileAddress, &'data str>,
}

impl<'data> Relocations<'data> {
    /// Reads them. `bytes_at` returns the bytes from an address to the end of its segment.
    pub fn read(
        file: &ElfFile64<'data, Endianness>,
        bytes_at: impl Fn(FileAddress) -> Option<&'data [u8]>,
    ) -> Self {
        let endian = file.endian();
        let mut headers = file.elf_program_headers().iter();
        let dynamic = headers.find_map(|header| header.dynamic(endian, file.data()).ok()?);
        let dynamic: &[Dyn64<Endianness>] = dynamic.unwrap_or_default();
        let entry = |tag| {
            let found = dynamic.iter().find(|entry| entry.tag(endian) == tag)?;
            Some(found.val(endian))
        };
        let table = |tag| bytes_at(FileAddress::new(entry(tag)?));
        let symbols = table(DT_SYMTAB).and_then(|symbols| {
            let count = symbols.len() / size_of::<Sym64<Endianness>>();
            let (symbols, _) = slice_from_bytes::<Sym64<Endianness>>(symbols, count).ok()?;
            Some(symbols)
        });
        let names = table(DT_STRTAB).unwrap_or_default();
        let name = |symbol: &Sym64<Endianness>| {
            let at = usize::try_from(symbol.st_name(endian)).ok()?;
            let text = names.get(at..)?;
            let end = memchr::memchr(0, text.get(..MAX_NAME).unwrap_or(text))?;
            std::str::from_utf8(text.get(..end)?).ok()
        };
        let mut found = Self::default();
        for (tag, size) in [(DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)] {
            let bytes = table(tag).unwrap_or_default();
            let size = usize::try_from(entry(size).unwrap_or(0)).unwrap_or(usize::MAX);
            let count = size.min(bytes.len()) / size_of::<Rela64<Endianness>>();
            let relocations = slice_from_bytes::<Rela64<Endianness>>(bytes, count);
            let relocations = relocations.map_or(&[][..], |(relocations, _)| relocations);
            for relocation in relocations.iter().take(MAX_RELOCATIONS) {
                let at = FileAddress::new(relocation.r_offset.get(endian));
                let symbol = || {
                    let index = usize::try_from(relocation.r_sym(endian, false)).ok()?;
                    symbols?.get(index)
                };
                let is_import = |symbol: &&Sym64<Endianness>| symbol.st_shndx(endian) == SHN_UNDEF;
                let base = match relocation.r_type(endian, false) {
                    R_X86_64_RELATIVE => Some(0),
                    R_X86_64_64 => symbol()
                        .filter(|symbol| !is_import(symbol))
                        .map(|symbol| symbol.st_value(endian)),
                    R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT => {
                        let imported = symbol().filter(is_import).and_then(name);
                        found.imports.extend(imported.map(|name| (at, name)));
                        None
                    }
                    _ => None,
                };
                let addend = relocation.r_addend.get(endian);
                let pointer = base.map(|base| FileAddress::new(base.wrapping_add_signed(addend)));
                found.pointers.extend(pointer.map(|pointer| (at, pointer)));
            }
        }
        found
    }
}
