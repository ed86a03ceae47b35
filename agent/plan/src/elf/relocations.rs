//! The pointers that the loader will store, by the dynamic segment, which the loader itself reads and
//! which remains where section headers were removed.

use std::collections::HashMap;

use object::Endianness;
use object::elf::{
    DT_RELA, DT_RELASZ, DT_SYMTAB, R_X86_64_64, R_X86_64_RELATIVE, Rela64, SHN_UNDEF, Sym64,
};
use object::pod::slice_from_bytes;
use object::read::elf::{Dyn as _, ElfFile64, ProgramHeader as _, Sym as _};

use super::address::FileAddress;

/// Most relocations that are read of one file; a server has some ten thousand.
const MAX_RELOCATIONS: usize = 500_000;

/// Returns the pointer that the loader will store at each address, before it adds the load bias.
/// `bytes_at` returns the bytes from an address to the end of its segment.
pub fn pointers<'data>(
    file: &ElfFile64<'data, Endianness>,
    bytes_at: impl Fn(FileAddress) -> Option<&'data [u8]>,
) -> HashMap<FileAddress, FileAddress> {
    let endian = file.endian();
    let dynamic = file
        .elf_program_headers()
        .iter()
        .find_map(|header| header.dynamic(endian, file.data()).ok()?);
    let entry = |tag| {
        let mut entries = dynamic?.iter();
        let found = entries.find(|entry| entry.tag(endian) == tag)?;
        Some(found.val(endian))
    };
    let table = |tag| bytes_at(FileAddress::new(entry(tag)?));
    let (Some(relocations), Some(size)) = (table(DT_RELA), entry(DT_RELASZ)) else {
        return HashMap::new();
    };
    let count = usize::try_from(size)
        .unwrap_or(usize::MAX)
        .min(relocations.len())
        / size_of::<Rela64<Endianness>>();
    let relocations = slice_from_bytes::<Rela64<Endianness>>(relocations, count);
    let symbols = table(DT_SYMTAB).and_then(|symbols| {
        let count = symbols.len() / size_of::<Sym64<Endianness>>();
        let (symbols, _) = slice_from_bytes::<Sym64<Endianness>>(symbols, count).ok()?;
        Some(symbols)
    });
    relocations
        .map_or(&[][..], |(relocations, _)| relocations)
        .iter()
        .take(MAX_RELOCATIONS)
        .filter_map(|relocation| {
            let base = match relocation.r_type(endian, false) {
                R_X86_64_RELATIVE => 0,
                R_X86_64_64 => {
                    let index = usize::try_from(relocation.r_sym(endian, false)).ok()?;
                    let symbol = symbols?.get(index)?;
                    (symbol.st_shndx(endian) != SHN_UNDEF).then(|| symbol.st_value(endian))?
                }
                _ => return None,
            };
            let pointer = base.wrapping_add_signed(relocation.r_addend.get(endian));
            let at = FileAddress::new(relocation.r_offset.get(endian));
            Some((at, FileAddress::new(pointer)))
        })
        .collect()
}
