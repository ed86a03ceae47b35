//! What an ELF executable says of itself: segments, names, unwind tables, relocations, build id.
//!
//! Every accessor is bounded by the file; an address that no segment covers is `None`.

use std::collections::HashMap;

use object::elf::{ELFCLASS64, ELFMAG, EM_X86_64, ET_DYN, ET_EXEC, PF_W, PF_X};
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};

use crate::elf::frames::Frames;
use crate::elf::relocations;

use crate::budget::Budget;
use crate::elf::bounds;

/// Most symbols that are read of one file; a server has ten thousand.
const MAX_SYMBOLS: usize = 300_000;
/// Longest build id, in bytes; linkers make 8 to 20.
const MAX_BUILD_ID: usize = 64;
/// Most mentions of one text or address that are looked at.
const MAX_MENTIONS: usize = 1_000;

/// What a 64-bit ELF file begins with: the magic number, and the class.
const ELF64_MAGIC: [u8; 5] = [ELFMAG[0], ELFMAG[1], ELFMAG[2], ELFMAG[3], ELFCLASS64];

/// Why a file is not an executable that can be planned for.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// No ELF file at all, or one of another class.
    #[error("not a 64-bit ELF file: name a redis-server executable")]
    NotElf,
    /// Cut off, or inconsistent.
    #[error("the ELF file is damaged, or a part of it is missing: copy or install it again")]
    Damaged,
    /// Another machine or kind of file.
    #[error("{0}; evictscope plans for x86-64 executables only")]
    Kind(&'static str),
    /// Its segments or sections go on behind its end.
    #[error("the file is cut off: parts that it declares are not there")]
    CutOff,
    /// Something that no linker makes.
    #[error("the file has {0}: it is damaged, or made to do harm")]
    Unreasonable(&'static str),
    /// No loadable segment can be executed.
    #[error("the file has no executable segment")]
    NoCode,
}

/// What the parser has to say concerns those who write executables, not those who name one.
impl From<object::Error> for ImageError {
    fn from(_: object::Error) -> Self {
        Self::Damaged
    }
}

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
struct Segment {
    address: u64,
    memory_size: u64,
    file_offset: u64,
    file_size: u64,
    executable: bool,
    writable: bool,
}

impl Segment {
    fn covers(&self, address: u64) -> bool {
        address
            .checked_sub(self.address)
            .is_some_and(|distance| distance < self.memory_size)
    }
}

/// A function or object with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Virtual address, as in the file.
    pub address: u64,
    /// Bytes; 0 where the file does not say.
    pub size: u64,
}

/// A parsed executable.
pub struct Image<'data> {
    data: &'data [u8],
    segments: Vec<Segment>,
    functions: HashMap<&'data str, Symbol>,
    objects: HashMap<&'data str, Symbol>,
    function_names: HashMap<u64, &'data str>,
    frames: Frames,
    is_fixed: bool,
    pointers: HashMap<u64, u64>,
    build_id: Option<String>,
    entry: u64,
    /// What the plan for this file may take.
    pub budget: Budget,
}

impl<'data> Image<'data> {
    /// Parses `data`, the whole content of an executable.
    ///
    /// # Errors
    ///
    /// Where it is not an ELF executable (or position-independent executable) for x86-64.
    pub fn parse(data: &'data [u8]) -> Result<Self, ImageError> {
        if !data.starts_with(&ELF64_MAGIC) {
            return Err(ImageError::NotElf);
        }
        bounds::check(data)?;
        let budget = Budget::default();
        let file = ElfFile64::<Endianness>::parse(data)?;
        let endian = file.endian();
        let header = file.elf_header();
        if header.e_machine(endian) != EM_X86_64 {
            return Err(ImageError::Kind("the file is for another processor"));
        }
        if !matches!(header.e_type(endian), ET_EXEC | ET_DYN) {
            return Err(ImageError::Kind("the file is not an executable"));
        }
        let segments: Vec<_> = file
            .elf_program_headers()
            .iter()
            .filter(|segment| segment.p_type(endian) == object::elf::PT_LOAD)
            .map(|segment| Segment {
                address: segment.p_vaddr(endian),
                memory_size: segment.p_memsz(endian),
                file_offset: segment.p_offset(endian),
                file_size: segment.p_filesz(endian),
                executable: segment.p_flags(endian) & PF_X != 0,
                writable: segment.p_flags(endian) & PF_W != 0,
            })
            .collect();
        if !segments.iter().any(|segment| segment.executable) {
            return Err(ImageError::NoCode);
        }
        let mut image = Self {
            data,
            segments,
            functions: HashMap::new(),
            objects: HashMap::new(),
            function_names: HashMap::new(),
            frames: Frames::read(&file),
            is_fixed: header.e_type(endian) == ET_EXEC,
            pointers: HashMap::new(),
            build_id: file
                .build_id()?
                .filter(|id| id.len() <= MAX_BUILD_ID)
                .map(hexadecimal),
            entry: header.e_entry(endian),
            budget,
        };
        image.pointers = relocations::pointers(&file, |address| image.bytes_at(address));
        image.read_symbols(&file);
        Ok(image)
    }

    /// Adds the names that the executable's debug file has, whose whole content is `debug`; the
    /// executable's own go before.
    ///
    /// # Errors
    ///
    /// Where it is no ELF file.
    pub fn add_symbols_of(&mut self, debug: &'data [u8]) -> Result<(), ImageError> {
        self.read_symbols(&ElfFile64::parse(debug)?);
        Ok(())
    }

    fn read_symbols(&mut self, file: &ElfFile64<'data, Endianness>) {
        let symbols = file
            .symbols()
            .chain(file.dynamic_symbols())
            .take(MAX_SYMBOLS);
        for symbol in symbols.filter(|symbol| symbol.is_definition()) {
            let Ok(name) = symbol.name() else { continue };
            if !self.budget.scan(name.len()) {
                return;
            }
            // A versioned name (`server@@Base`) is the same name.
            let name = name.split('@').next().unwrap_or(name);
            let entry = Symbol {
                address: symbol.address(),
                size: symbol.size(),
            };
            match symbol.kind() {
                SymbolKind::Text => {
                    self.functions.entry(name).or_insert(entry);
                    self.function_names.entry(entry.address).or_insert(name);
                }
                SymbolKind::Data => {
                    self.objects.entry(name).or_insert(entry);
                }
                _ => {}
            }
        }
    }

    /// The function called `name`, or a clone of it that a compiler made (`name.constprop.0`, …).
    pub fn function(&self, name: &str) -> Option<Symbol> {
        self.functions.get(name).copied().or_else(|| {
            let mut clones = self
                .functions
                .iter()
                .filter(|(clone, _)| is_clone_of(clone, name))
                .map(|(_, symbol)| *symbol);
            clones.next().filter(|_| clones.next().is_none())
        })
    }

    /// The name of the function that begins at `address`.
    pub fn function_name(&self, address: u64) -> Option<&'data str> {
        self.function_names.get(&address).copied()
    }

    /// Calls the function at `address` by a name that was found out.
    pub fn name_function(&mut self, name: &'static str, address: u64) {
        let function = Symbol { address, size: 0 };
        self.functions.entry(name).or_insert(function);
        self.function_names.entry(address).or_insert(name);
    }

    /// Whether a function begins at `address`, and not a part of one, as names say, or else the
    /// unwind tables.
    pub fn is_function(&self, address: u64) -> bool {
        match self.function_name(address) {
            Some(name) => !name.contains(".cold"),
            None => self.frames.is_entry(address),
        }
    }

    /// What the unwind tables say.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Whether the executable is linked to a fixed address, so that code can hold addresses.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The executable segments: address and content.
    pub fn code(&self) -> impl Iterator<Item = (u64, &'data [u8])> + '_ {
        self.segments
            .iter()
            .filter(|segment| segment.executable)
            .filter_map(|segment| Some((segment.address, self.segment_bytes(segment)?)))
    }

    /// The global variable called `name`.
    pub fn object(&self, name: &str) -> Option<Symbol> {
        self.objects.get(name).copied()
    }

    /// GNU build id, lower-case hexadecimal.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Virtual address of the first instruction that the process executes (`e_entry`).
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Offset in the file of a virtual address, where the file holds it.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        let segment = self.segment(address)?;
        let distance = address - segment.address;
        (distance < segment.file_size)
            .then(|| segment.file_offset.checked_add(distance))
            .flatten()
    }

    /// Whether `address` is in code.
    pub fn is_code(&self, address: u64) -> bool {
        self.segment(address)
            .is_some_and(|segment| segment.executable)
    }

    /// Whether `address` is in data that the process can write.
    pub fn is_writable(&self, address: u64) -> bool {
        self.segment(address)
            .is_some_and(|segment| segment.writable)
    }

    /// The bytes from `address` to the end of its segment.
    pub fn bytes_at(&self, address: u64) -> Option<&'data [u8]> {
        let segment = self.segment(address)?;
        let skip = usize::try_from(address - segment.address).ok()?;
        self.segment_bytes(segment)?.get(skip..)
    }

    /// The 4 bytes at `address`, as a signed number.
    pub fn i32_at(&self, address: u64) -> Option<i32> {
        let bytes = self.bytes_at(address)?.first_chunk()?;
        Some(i32::from_le_bytes(*bytes))
    }

    /// The pointer at `address`, as the loader leaves it (before the load bias is added).
    pub fn pointer_at(&self, address: u64) -> Option<u64> {
        if let Some(pointer) = self.pointers.get(&address) {
            return Some(*pointer);
        }
        let bytes = self.bytes_at(address)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    }

    /// The addresses of all NUL-terminated strings equal to `text`, also where a linker made one the
    /// tail of another, or put data between the code.
    pub fn find_string(&self, text: &str) -> Vec<u64> {
        let needle = [text.as_bytes(), b"\0"].concat();
        let finder = memchr::memmem::Finder::new(&needle);
        let mut found = Vec::new();
        for segment in &self.segments {
            let Some(bytes) = self.segment_bytes(segment) else {
                continue;
            };
            self.budget.scan(bytes.len());
            found.extend(
                finder
                    .find_iter(bytes)
                    .map(|at| segment.address + at as u64)
                    .take(MAX_MENTIONS),
            );
        }
        found
    }

    /// The bytes at `address` up to the next NUL, if that is at most `longest` bytes away.
    pub fn text_at(&self, address: u64, longest: usize) -> Option<&'data [u8]> {
        let bytes = self.bytes_at(address)?;
        let end = memchr::memchr(0, bytes.get(..=longest).unwrap_or(bytes))?;
        bytes.get(..end)
    }

    /// The addresses in writable data that hold a pointer to `target`.
    pub fn pointers_to(&self, target: u64) -> Vec<u64> {
        if !self.budget.scan(16 * self.pointers.len()) {
            return Vec::new();
        }
        let mut found: Vec<u64> = self
            .pointers
            .iter()
            .filter(|(_, pointer)| **pointer == target)
            .map(|(at, _)| *at)
            .take(MAX_MENTIONS)
            .collect();
        for segment in self.segments.iter().filter(|segment| segment.writable) {
            let Some(bytes) = self.segment_bytes(segment) else {
                continue;
            };
            if !self.budget.scan(4 * bytes.len()) {
                break;
            }
            let first = segment.address.next_multiple_of(8);
            let skip = usize::try_from(first - segment.address).unwrap_or(usize::MAX);
            let (words, _) = bytes.get(skip..).unwrap_or_default().as_chunks::<8>();
            found.extend(
                words
                    .iter()
                    .zip((first..).step_by(8))
                    .filter(|(word, at)| {
                        u64::from_le_bytes(**word) == target && !self.pointers.contains_key(at)
                    })
                    .map(|(_, at)| at)
                    .take(MAX_MENTIONS),
            );
        }
        found.sort_unstable();
        found
    }

    fn segment(&self, address: u64) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.covers(address))
    }

    fn segment_bytes(&self, segment: &Segment) -> Option<&'data [u8]> {
        let start = usize::try_from(segment.file_offset).ok()?;
        let end = start.checked_add(usize::try_from(segment.file_size).ok()?)?;
        self.data.get(start..end.min(self.data.len()))
    }
}

fn is_clone_of(clone: &str, name: &str) -> bool {
    clone
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|suffix| !suffix.starts_with("cold") && !suffix.starts_with("part"))
}

/// Lower-case hexadecimal.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
