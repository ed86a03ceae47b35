//! Damages executables as a script of bytes says: the fuzzer varies the script.
//!
//! A server is megabytes, but the plan rests on a few kilobytes. The script says what to change there:
//! in the functions that are analysed, in the tables that lead to them, and in the file's headers.

use std::ops::Range;

use object::read::elf::{ElfFile64, ElfSymbol64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _};

/// The functions that a plan relies on.
const FUNCTIONS: [&str; 5] = [
    "performEvictions",
    "freeMemoryIfNeeded",
    "getMaxmemoryState",
    "zmalloc_used_memory",
    "freeMemoryGetNotCountedMemory",
];
/// Sections that are read as tables.
const TABLES: [&str; 13] = [
    ".note.gnu.build-id",
    ".dynsym",
    ".dynstr",
    ".symtab",
    ".strtab",
    ".rela.dyn",
    ".dynamic",
    ".data",
    ".data.rel.ro",
    ".debug_info",
    ".debug_abbrev",
    ".debug_loclists",
    ".debug_rnglists",
];
/// How many bytes from the beginning of these tables are damaged.
const TABLE_BYTES: usize = 4096;
/// Bytes of the script for one change.
const RECORD: usize = 8;
/// Values close to overflow, or the offset of nothing.
const INTERESTING: [u64; 8] =
    [0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, 0x8000_0000_0000_0000, u64::MAX];

/// An executable, and where it is worth damaging.
#[derive(Clone)]
pub struct MutationBase {
    data: Vec<u8>,
    regions: Vec<Range<usize>>,
}

impl MutationBase {
    /// Finds the places in an executable. In other data any place is as good as another.
    pub fn new(data: Vec<u8>) -> Self {
        let mut regions =
            ElfFile64::<Endianness>::parse(&*data).ok().and_then(|file| regions(&file)).unwrap_or_default();
        regions.retain(|region| region.start < region.end && region.end <= data.len());
        if regions.is_empty() {
            regions.push(0..data.len());
        }
        Self { data, regions }
    }

    /// Returns the functions that a plan relies on, each as a base of its own.
    pub fn functions(&self) -> Vec<Self> {
        let file = ElfFile64::<Endianness>::parse(&*self.data);
        file.map(|file| functions(&file)).unwrap_or_default().into_iter().filter_map(|range| self.part(range)).collect()
    }

    /// Returns a section as a base of its own.
    pub fn section(&self, name: &str) -> Option<Self> {
        let (start, size) = ElfFile64::<Endianness>::parse(&*self.data).ok()?.section_by_name(name)?.file_range()?;
        let start = usize::try_from(start).ok()?;
        self.part(start..start + usize::try_from(size).ok()?)
    }

    fn part(&self, range: Range<usize>) -> Option<Self> {
        Some(Self::new(self.data.get(range)?.to_vec()))
    }

    /// Returns the executable with the changes that `script` asks for, 8 bytes each: what, in which region,
    /// where in it, and to what.
    pub fn damaged(&self, script: &[u8]) -> Vec<u8> {
        let mut data = self.data.clone();
        for record in script.as_chunks::<RECORD>().0 {
            let [what, region, at_low, at_high, value @ ..] = *record;
            let Some(region) = self.regions.get(usize::from(region) % self.regions.len()) else { continue };
            let place = usize::from(u16::from_le_bytes([at_low, at_high]));
            let at = region.start + place % region.len().max(1);
            self.change(&mut data, what, at, region, value);
        }
        data
    }

    fn change(&self, data: &mut Vec<u8>, what: u8, at: usize, region: &Range<usize>, value: [u8; 4]) {
        let number = u32::from_le_bytes(value);
        let mut put = |bytes: &[u8]| {
            for (target, byte) in data.iter_mut().skip(at).zip(bytes) {
                *target = *byte;
            }
        };
        match what % 8 {
            0 => put(&value[..1]),
            1 => put(&value),
            2 => put(&INTERESTING[usize::from(value[0] % 8)].to_le_bytes()),
            3 => put(&[0x90; 16][..usize::from(value[0] % 16)]),
            // A piece of the same region, such as other instructions of the same function.
            4 => {
                let from = region.start + usize::from(u16::from_le_bytes([value[0], value[1]])) % region.len().max(1);
                let to = (from + 1 + usize::from(value[2] % 32)).min(region.end);
                put(self.data.get(from..to).unwrap_or_default());
            }
            5 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte ^= 1 << (value[0] % 8);
                }
            }
            6 => {
                if let Some(byte) = data.get_mut(at) {
                    *byte = byte.wrapping_add(value[0]);
                }
            }
            // Rare, because little is left to look at: the rest of the file is gone.
            _ if number.is_multiple_of(16) => data.truncate(at),
            _ => put(&value[..2]),
        }
    }
}

/// Finds the places in a file that a plan depends on.
fn regions(file: &ElfFile64<'_, Endianness>) -> Option<Vec<Range<usize>>> {
    let endian = file.endian();
    let header = file.elf_header();
    // The file's header with the program headers after it, and the section headers.
    let sections = usize::try_from(header.e_shoff(endian)).ok()?;
    let mut regions = vec![
        0..64 + 56 * usize::from(header.e_phnum(endian)),
        sections..sections + 64 * usize::from(header.e_shnum(endian)),
    ];
    for section in TABLES.iter().filter_map(|name| file.section_by_name(name)) {
        if let Some((start, size)) = section.file_range() {
            let start = usize::try_from(start).ok()?;
            let size = usize::try_from(size).ok()?.min(TABLE_BYTES);
            regions.push(start..start + size);
        }
    }
    for function in functions(file) {
        // Most of the damage belongs here.
        regions.extend(std::iter::repeat_n(function, 4));
    }
    Some(regions)
}

/// Finds the functions that a plan relies on.
fn functions(file: &ElfFile64<'_, Endianness>) -> Vec<Range<usize>> {
    let symbols = file.symbols().chain(file.dynamic_symbols());
    let wanted = symbols.filter(|symbol| symbol.name().is_ok_and(|name| FUNCTIONS.contains(&name)));
    let range = |symbol: ElfSymbol64<'_, '_, Endianness>| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let (offset, _) = section.file_range()?;
        let distance = symbol.address().checked_sub(section.address())?;
        let start = usize::try_from(distance + offset).ok()?;
        Some(start..start + usize::try_from(symbol.size()).ok()?)
    };
    wanted.filter_map(range).collect()
}
