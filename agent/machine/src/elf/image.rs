//! What an ELF executable says about itself: segments, names, unwind tables, relocations, build id, and the separate
//! file with its debug information.
//!
//! Every accessor is bounded by the file; it returns `None` for an address that no segment covers.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;
use object::elf::{ELFCLASS64, ELFMAG, ET_DYN, ET_EXEC};
use object::read::elf::{ElfFile64, FileHeader as _};
use object::{Endianness, Object as _};

use super::frames::Frames;
use super::segments::{self, ElfError, Relocations, Segments};
use super::symbols::Symbols;
use crate::budget::Budget;
use crate::ir::Instruction;
use crate::isa::Architecture;

/// The most mentions of one text or address to look at.
const MAX_MENTIONS: usize = 1_000;
/// The most texts that contain a given part; no linker leaves that many copies.
const MAX_TEXTS: usize = 16;
/// The longest build id, in bytes; linkers make 8 to 20.
const MAX_BUILD_ID: usize = 64;
/// What a 64-bit ELF file begins with: the magic number, and the class.
const ELF64_MAGIC: [u8; 5] = [ELFMAG[0], ELFMAG[1], ELFMAG[2], ELFMAG[3], ELFCLASS64];

/// A parsed executable.
#[derive(Default)]
pub struct Image<'data> {
    /// What its code is for.
    pub architecture: Architecture,
    pub(crate) segments: Segments<'data>,
    /// The functions and variables that the file names, and its debug file.
    pub symbols: Symbols<'data>,
    /// What the unwind tables say.
    pub frames: Frames,
    /// Whether it is linked to a fixed address, so that code can contain addresses.
    pub is_fixed: bool,
    relocations: Relocations<'data>,
    /// Names of functions that do not return, in addition to libc's.
    pub not_returning: Vec<&'static str>,
    /// The GNU build id in lower-case hexadecimal digits.
    pub build_id: Option<String>,
    /// The address of the first instruction that the process executes (`e_entry`).
    pub entry: FileAddress,
    /// What the analysis of this file may take.
    pub budget: Budget,
}

impl<'data> Image<'data> {
    /// Parses `data`, the whole content of an executable. Fails if it is not an ELF executable (or position-independent
    /// executable) for a processor that is known.
    pub fn parse(data: &'data [u8]) -> Result<Self, ElfError> {
        if !data.starts_with(&ELF64_MAGIC) {
            return Err(ElfError::NotElf);
        }
        segments::check(data)?;
        let file = ElfFile64::<Endianness>::parse(data)?;
        let endian = file.endian();
        let header = file.elf_header();
        let machine = header.e_machine(endian);
        let architecture =
            Architecture::of_machine(machine).ok_or(ElfError::Kind("the file is for another processor"))?;
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err(ElfError::Kind("the file is not an executable"));
        }
        let segments = Segments::read(&file);
        if !segments.has_code() {
            return Err(ElfError::NoCode);
        }
        let budget = Budget::default();
        let mut symbols = Symbols::default();
        symbols.read(&file, &budget);
        Ok(Self {
            architecture,
            frames: Frames::read(&file, architecture),
            is_fixed: header.e_type(endian) == ET_EXEC,
            not_returning: Vec::new(),
            relocations: Relocations::read(&file, architecture, |address| segments.bytes_at(address)),
            build_id: build_id(&file)?,
            entry: FileAddress::new(header.e_entry(endian)),
            segments,
            symbols,
            budget,
        })
    }

    /// Makes an executable of nothing but code, which begins at `address`.
    pub fn of_code(code: &'data [u8], address: FileAddress) -> Self {
        Self { segments: Segments::of_code(code, address), is_fixed: true, entry: address, ..Self::default() }
    }

    /// Adds the names in the executable's debug file, whose whole content is `debug`. The executable's own names take
    /// precedence. Fails if it is not an ELF file.
    pub fn add_symbols_of(&mut self, debug: &'data [u8]) -> Result<(), ElfError> {
        let file = ElfFile64::parse(debug)?;
        self.symbols.read(&file, &self.budget);
        Ok(())
    }

    /// Returns the name of the function of a shared library whose address the loader stores at `slot`.
    pub fn import(&self, slot: FileAddress) -> Option<&'data str> {
        self.relocations.imports.get(&slot).copied()
    }

    /// Returns the addresses that the loader stores, before it adds the load bias, in slots that the process cannot
    /// change.
    pub(crate) fn linked(&self) -> Rc<HashMap<FileAddress, FileAddress>> {
        self.relocations.linked.clone()
    }

    /// Returns whether a whole function, not a part of one, begins at `address`: according to the names, or else to the
    /// unwind tables.
    pub fn is_function(&self, address: FileAddress) -> bool {
        match self.symbols.function_name(address) {
            Some(name) => !name.contains(".cold"),
            None => self.frames.is_entry(address),
        }
    }

    /// Returns the address and content of each executable segment.
    pub fn code(&self) -> impl Iterator<Item = (FileAddress, &'data [u8])> + '_ {
        self.segments.iter().filter(|(segment, _)| segment.is_code).map(|(segment, bytes)| (segment.address, bytes))
    }

    /// Returns whether `address` is in code.
    pub fn is_code(&self, address: FileAddress) -> bool {
        self.segments.at(address).is_some_and(|segment| segment.is_code)
    }

    /// Decodes the code at an address, one instruction after the other; nothing if there is none.
    pub(crate) fn instructions_at(&self, address: FileAddress) -> impl Iterator<Item = Instruction> + use<'data> {
        let bytes = self.bytes_at(address).filter(|_| self.is_code(address));
        self.architecture.decode_all(bytes.unwrap_or_default(), address)
    }

    /// Returns whether `address` is in data that the process can write.
    pub fn is_writable(&self, address: FileAddress) -> bool {
        self.segments.at(address).is_some_and(|segment| segment.is_writable)
    }

    /// Returns the bytes from `address` to the end of its segment.
    pub fn bytes_at(&self, address: FileAddress) -> Option<&'data [u8]> {
        self.segments.bytes_at(address)
    }

    /// Returns the 4 bytes at `address` as a signed number.
    pub fn i32_at(&self, address: FileAddress) -> Option<i32> {
        let bytes = self.bytes_at(address)?.first_chunk()?;
        Some(i32::from_le_bytes(*bytes))
    }

    /// Returns the 8 bytes at `address` as a number, if the process cannot write them.
    pub fn constant_at(&self, address: FileAddress) -> Option<u64> {
        let bytes = self.bytes_at(address).filter(|_| !self.is_writable(address))?;
        Some(u64::from_le_bytes(*bytes.first_chunk()?))
    }

    /// Returns the pointer at `address` as the loader leaves it, before it adds the load bias.
    pub fn pointer_at(&self, address: FileAddress) -> Option<FileAddress> {
        if let Some(pointer) = self.relocations.pointers.get(&address) {
            return Some(*pointer);
        }
        let bytes = self.bytes_at(address)?.first_chunk()?;
        Some(FileAddress::new(u64::from_le_bytes(*bytes)))
    }

    /// Finds all NUL-terminated strings that equal `text`, including those that a linker made the tail of another
    /// string or put between code.
    pub fn find_string(&self, text: &str) -> Vec<FileAddress> {
        let needle = [text.as_bytes(), b"\0"].concat();
        let finder = memchr::memmem::Finder::new(&needle);
        let mut found = Vec::new();
        for (segment, bytes) in self.segments.iter() {
            self.budget.scan(bytes.len());
            let places = finder.find_iter(bytes).take(MAX_MENTIONS);
            found.extend(places.map(|at| segment.address.wrapping_add(at as u64)));
        }
        found
    }

    /// Finds `part` in texts that the process cannot write: the range from the start of each such text, at most
    /// `longest` bytes before, to the start of the part.
    pub fn texts_with(&self, part: &[u8], longest: usize) -> Vec<Range<FileAddress>> {
        let finder = memchr::memmem::Finder::new(part);
        let mut found = Vec::new();
        for (segment, bytes) in self.segments.iter() {
            if segment.is_writable || !self.budget.scan(bytes.len()) {
                continue;
            }
            for at in finder.find_iter(bytes).take(MAX_TEXTS) {
                let before = bytes.get(at.saturating_sub(longest)..at).unwrap_or_default();
                let length = memchr::memrchr(0, before).map_or(before.len(), |nul| before.len() - nul - 1);
                let place = |at: usize| segment.address.wrapping_add(at as u64);
                found.push(place(at - length)..place(at + 1));
            }
        }
        found
    }

    /// Returns the bytes at `address` up to the next NUL, if that is at most `longest` bytes away.
    pub fn text_at(&self, address: FileAddress, longest: usize) -> Option<&'data [u8]> {
        let bytes = self.bytes_at(address)?;
        let end = memchr::memchr(0, bytes.get(..=longest).unwrap_or(bytes))?;
        bytes.get(..end)
    }

    /// Finds the addresses in writable data that hold a pointer to `target`, in ascending order.
    pub fn pointers_to(&self, target: FileAddress) -> Vec<FileAddress> {
        if !self.budget.scan(16 * self.relocations.pointers.len()) {
            return Vec::new();
        }
        let relocated = (self.relocations.pointers.iter()).filter(|(_, pointer)| **pointer == target);
        let mut found: Vec<FileAddress> = relocated.map(|(at, _)| *at).take(MAX_MENTIONS).collect();
        for (segment, bytes) in self.segments.iter() {
            if !segment.is_writable {
                continue;
            }
            if !self.budget.scan(4 * bytes.len()) {
                break;
            }
            let begin = segment.address.get();
            let first = begin.next_multiple_of(8);
            let skip = usize::try_from(first - begin).unwrap_or(usize::MAX);
            let (words, _) = bytes.get(skip..).unwrap_or_default().as_chunks::<8>();
            let addresses = (first..).step_by(8).map(FileAddress::new);
            let stored = words.iter().zip(addresses).filter(|(word, at)| {
                u64::from_le_bytes(**word) == target.get() && !self.relocations.pointers.contains_key(at)
            });
            found.extend(stored.map(|(_, at)| at).take(MAX_MENTIONS));
        }
        found.sort_unstable();
        found
    }
}

/// Returns the build id of a file as lower-case hexadecimal digits. Fails if the notes are damaged.
pub fn build_id(file: &ElfFile64<'_, Endianness>) -> Result<Option<String>, object::Error> {
    let id = file.build_id()?.filter(|id| id.len() <= MAX_BUILD_ID);
    Ok(id.map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// What an executable without debug information says about the file that has it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct DebugFileNames {
    /// GNU build id in lower-case hexadecimal digits; the debug file has the same.
    pub build_id: Option<String>,
    /// The debug file's name, from `.gnu_debuglink`.
    pub link: Option<String>,
    /// The CRC-32 of the debug file's content, from `.gnu_debuglink`.
    pub crc: Option<u32>,
}

/// Why a file is not the debug file of an executable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum NotItsDebugFile {
    #[error("it is not a 64-bit ELF file")]
    Elf,
    #[error("its build id is {found}, the executable's is {wanted}")]
    BuildId { found: String, wanted: String },
    #[error("its checksum differs from the one in the executable's .gnu_debuglink")]
    Checksum,
    #[error("the executable has neither a build id nor a .gnu_debuglink to check it against")]
    Unchecked,
}

impl DebugFileNames {
    /// Reads them from the executable whose whole content is `data`. Returns `None` if it has debug information itself,
    /// or nothing by which to recognise its debug file. Fails as [`Image::parse`] does.
    pub fn of(data: &[u8]) -> Result<Option<Self>, ElfError> {
        let build_id = Image::parse(data)?.build_id;
        let file = ElfFile64::<Endianness>::parse(data)?;
        if file.section_by_name(".debug_info").is_some() {
            return Ok(None);
        }
        // A damaged link counts as absent.
        let link = file.gnu_debuglink().ok().flatten();
        let names = Self {
            build_id,
            link: link.and_then(|(name, _)| Some(std::str::from_utf8(name).ok()?.to_owned())),
            crc: link.map(|(_, crc)| crc),
        };
        Ok((names.build_id.is_some() || names.link.is_some()).then_some(names))
    }

    /// Checks that the file whose whole content is `data` is the executable's debug file: by build id, or by the
    /// checksum if the executable has no build id. Fails with the reason if it is not.
    pub fn check(&self, data: &[u8]) -> Result<(), NotItsDebugFile> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(|_| NotItsDebugFile::Elf)?;
        if let Some(wanted) = &self.build_id {
            return match build_id(&file).ok().flatten() {
                Some(found) if found == *wanted => Ok(()),
                found => Err(NotItsDebugFile::BuildId {
                    found: found.unwrap_or_else(|| "missing".to_owned()),
                    wanted: wanted.clone(),
                }),
            };
        }
        match self.crc {
            Some(crc) if crc == crc32fast::hash(data) => Ok(()),
            Some(_) => Err(NotItsDebugFile::Checksum),
            None => Err(NotItsDebugFile::Unchecked),
        }
    }
}
