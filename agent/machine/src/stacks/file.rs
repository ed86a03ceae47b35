//! What is kept of one file that a process has mapped.

use std::collections::HashMap;
use std::iter;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::{FileAddress, FileOffset};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _};

use super::unwind::{Caller, FrameRegisters, Tables, Work};
use crate::code::graph::FunctionCode;
use crate::elf::frames::{Frames, UnwindTable};
use crate::elf::image::Image;
use crate::elf::segments::ElfError;
use crate::ir::Flow;

/// How far past the entry point the startup code may extend if no table covers it, in bytes. It is some 40 bytes long.
const START: u64 = 64;
/// The section of the stubs through which code calls functions of other files.
const STUBS: &str = ".plt";
/// The largest page of a kernel, in bytes: others have a part of it.
const LARGEST_PAGE: u64 = 64 << 10;

/// The functions of an executable or a shared library, and its unwind tables. It keeps no reference to the file's
/// bytes.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct CodeFile {
    functions: HashMap<FileAddress, NamedCode>,
    frames: Frames,
    tables: Option<Tables>,
    /// Where functions begin and end of which no table says anything, and need not.
    bare: Vec<(FileAddress, FileAddress)>,
    /// The address of each code segment, and where it begins and ends in the file.
    segments: Vec<(FileAddress, u64, u64)>,
    entry: FileAddress,
    /// The return addresses of calls of traced functions, by the function's number.
    returns: HashMap<usize, Vec<FileAddress>>,
}

impl CodeFile {
    /// Reads the file whose whole content is `data`. Fails if it is not an ELF executable or shared library for a
    /// processor that is known.
    pub fn read(data: &[u8]) -> Result<Self, ElfError> {
        Self::with_names(Image::parse(data)?, data, &[], Vec::new())
    }

    /// Takes what is kept of `image`, whose whole content is `data`. Functions that begin at the addresses in
    /// `nameless` get these names where the file has none. Fails as [`Self::read`] does.
    pub fn with_names(
        image: Image<'_>,
        data: &[u8],
        traced: &[TracedEntry],
        nameless: Vec<(FileAddress, String)>,
    ) -> Result<Self, ElfError> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        Ok(Self {
            functions: functions(&image, traced, nameless),
            returns: returns(&image, traced),
            tables: UnwindTable::find(&file).and_then(|table| Tables::copy(&table)),
            bare: bare(&image, file.section_by_name(STUBS).map(|stubs| (stubs.address(), stubs.size()))),
            segments: image.segments.code(),
            entry: image.entry,
            frames: image.frames,
        })
    }

    /// Returns the address of the byte at the file offset of a process's mapping of code; the load bias follows from it
    /// and the mapping's address. The loader maps whole pages, so a mapping may begin before its segment.
    pub fn mapped_code(&self, offset: FileOffset) -> Option<FileAddress> {
        let offset = offset.get();
        let is_it = |(_, begin, end): &&(FileAddress, u64, u64)| (begin & !(LARGEST_PAGE - 1)..*end).contains(&offset);
        let (address, begin, _) = self.segments.iter().filter(is_it).min_by_key(|(_, _, end)| *end)?;
        Some(address.wrapping_add(offset.wrapping_sub(*begin)))
    }

    /// Returns the function at an address, if it has a name.
    pub fn function(&self, at: FileAddress) -> Option<&NamedCode> {
        self.functions.get(&self.beginning(at)?)
    }

    /// Returns where the function, or the part of one, at an address begins.
    pub fn beginning(&self, at: FileAddress) -> Option<FileAddress> {
        self.frames.at(at).map(|frame| frame.start).or_else(|| self.bare_at(at))
    }

    fn bare_at(&self, at: FileAddress) -> Option<FileAddress> {
        let bare = self.bare.iter().find(|(begin, end)| (*begin..*end).contains(&at));
        bare.map(|(begin, _)| *begin)
    }

    /// Returns where calls of the function at an address return to, for traced functions only. Calls through a pointer
    /// are missing, and what only looks like a call may be included.
    pub fn returns(&self, at: FileAddress) -> &[FileAddress] {
        let traced = self.function(at).and_then(|function| function.traced);
        traced.and_then(|traced| self.returns.get(&traced)).map_or(&[], Vec::as_slice)
    }

    /// Returns whether an address is in the function with which the process begins.
    pub fn is_start(&self, at: FileAddress) -> bool {
        match self.frames.at(at) {
            Some(frame) => (frame.start..frame.end).contains(&self.entry),
            None => at.checked_sub(self.entry).is_some_and(|far| far < START),
        }
    }

    /// Returns what called the frame with these registers, whose code is at `at`. `read` returns the 8 bytes of the
    /// stack at an address.
    ///
    /// Returns `None` if the tables do not say, or the copied stack does not extend that far.
    pub fn caller(
        &self,
        work: &mut Work,
        at: FileAddress,
        registers: &FrameRegisters,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Caller> {
        let Some(entry) = self.frames.at(at) else {
            return self.bare_at(at).and(registers.behind_link()).map(Caller::Called);
        };
        (self.tables.as_ref()?).caller(work, entry, at, registers, read)
    }
}

/// Memory for one function with its name, in bytes.
const BYTES: usize = 128;
/// The longest name to keep, in bytes.
const MAX_NAME: usize = 200;

/// The most calls to keep for one function.
const MAX_CALLS: usize = 32;

/// A function, or a part of one that the compiler moved elsewhere.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct NamedCode {
    /// Its name; for a part, that of its function.
    pub name: String,
    /// Its number, if it is a traced function or a part of one.
    pub traced: Option<usize>,
}

/// A function that is traced: where it begins, its name, and its number.
pub type TracedEntry = (FileAddress, &'static str, usize);

/// Returns the functions with names, by their addresses.
fn functions(
    image: &Image<'_>,
    traced: &[TracedEntry],
    nameless: Vec<(FileAddress, String)>,
) -> HashMap<FileAddress, NamedCode> {
    let mut found = HashMap::new();
    let mut add = |address: FileAddress, name: String, traced| {
        if image.budget.keep(BYTES + name.len()) {
            found.entry(address).or_insert(NamedCode { name, traced });
        }
    };
    // These first: their names are certain.
    for (address, name, index) in traced {
        for part in iter::once(*address).chain(parts(image, *address)) {
            add(part, (*name).to_owned(), Some(*index));
        }
    }
    for (address, name) in image.symbols.function_names() {
        if name.len() <= MAX_NAME {
            add(address, own_name(name).to_owned(), None);
        }
    }
    for (address, name) in nameless {
        add(address, name, None);
    }
    found
}

/// Finds the functions that no table covers, and that change neither their stack pointer nor their link register, and
/// such stubs, of which each ends with a jump, in the section of them that begins at an address and has some bytes.
fn bare(image: &Image<'_>, stubs: Option<(u64, u64)>) -> Vec<(FileAddress, FileAddress)> {
    if image.architecture.convention().link.is_none() {
        return Vec::new();
    }
    let all = image.symbols.names().filter_map(|name| image.symbols.function(name));
    let all = all.map(|function| (function.address, function.address.saturating_add(function.size)));
    let mut found: Vec<_> = all.filter(|(begin, _)| image.frames.at(*begin).is_none()).collect();
    if let Some((begin, size)) = stubs {
        let (mut begin, end) = (FileAddress::new(begin), FileAddress::new(begin).saturating_add(size));
        let jumps = image.instructions_at(begin).take_while(|instruction| instruction.address < end);
        for jump in jumps.filter(|instruction| matches!(instruction.flow, Flow::IndirectJump(_))) {
            found.push((begin, jump.next()));
            begin = jump.next();
        }
    }
    found.retain(|(begin, end)| {
        let mut at = *begin;
        let code = image.instructions_at(at).take_while(|instruction| {
            let is_next = instruction.address == at && at < *end && image.budget.spend(1);
            at = instruction.next();
            is_next
        });
        code.take_while(|instruction| image.architecture.keeps_link(instruction)).last().map(|last| last.next())
            == Some(*end)
    });
    found
}

/// Returns the address after each instruction that looks like a call of a traced function, by its number.
fn returns(image: &Image<'_>, traced: &[TracedEntry]) -> HashMap<usize, Vec<FileAddress>> {
    let mut found: HashMap<usize, Vec<FileAddress>> = HashMap::new();
    let traced: HashMap<FileAddress, usize> = (traced.iter()).map(|(address, _, index)| (*address, *index)).collect();
    if traced.is_empty() {
        return found;
    }
    for (begin, code) in image.code() {
        if !image.budget.spend(1 + code.len() as u64 / 16) {
            break;
        }
        for (behind, target) in image.architecture.calls(begin, code) {
            if let Some(index) = traced.get(&target) {
                let all = found.entry(*index).or_default();
                if all.len() < MAX_CALLS {
                    all.push(behind);
                }
            }
        }
    }
    found
}

/// Returns where a function's parts outside its entry's frame begin, according to its jumps.
fn parts(image: &Image<'_>, function: FileAddress) -> Vec<FileAddress> {
    let Ok(code) = FunctionCode::decode(image, function) else { return Vec::new() };
    let entries = code.blocks.iter().map(|block| block.address()).filter_map(|block| image.frames.at(block));
    let others = entries.filter(|entry| entry.start != function && !entry.is_entry);
    let mut starts: Vec<FileAddress> = others.map(|entry| entry.start).collect();
    starts.dedup();
    starts
}

/// Returns a function's name without what compilers append for a part or a clone. A part that was made a function of
/// its own (`.part`) keeps its suffix: both are on the stack.
fn own_name(name: &str) -> &str {
    let ends = [".cold", ".constprop", ".isra", ".lto_priv"].iter().filter_map(|suffix| name.find(suffix));
    let end = ends.filter(|end| *end > 0).min();
    end.map_or(name, |end| &name[..end])
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use evictscope_model::{FileAddress, FileOffset};

    use super::{CodeFile, Frames, Image, bare, own_name};
    use crate::elf::Symbol;
    use crate::isa::Architecture;

    #[test]
    fn a_mapping_of_any_kernels_pages_leads_to_its_segment() {
        let (address, begin, end) = (0x7_2345, 0x1_2345, 0x2_0000);
        let file = CodeFile {
            functions: HashMap::new(),
            frames: Frames::default(),
            tables: None,
            bare: Vec::new(),
            segments: vec![(FileAddress::new(address), begin, end)],
            entry: FileAddress::default(),
            returns: HashMap::new(),
        };
        let at = |offset| file.mapped_code(FileOffset::new(offset)).map(FileAddress::get);
        // With pages of 4 and of 64 KiB, and a part of the segment.
        let led = [0x1_2000, 0x1_0000, 0x1_3000].map(at);
        assert_eq!(led, [Some(0x7_2000), Some(0x7_0000), Some(0x7_3000)]);
        assert_eq!([0, 0xf000, end].map(at), [None; 3]);
    }

    #[test]
    fn what_leaves_its_link_register_alone_needs_no_table() {
        let function = [0xd503_233f, 0xd400_0001, 0xd503_23bf, 0xd65f_03c0]; // paciasp; svc #0; autiasp; ret
        let with_a_frame = [0xa9bf_7bfd, 0xd65f_03c0]; // stp x29, x30, [sp, #-16]!; ret
        let calls = [0x9400_0001, 0xd65f_03c0]; // bl; ret
        let stub = [0x9000_0010, 0xf940_0211, 0x9100_0210, 0xd61f_0220]; // adrp x16; ldr x17, [x16]; add x16; br x17
        let first_stub = [&[0xa9bf_7bf0], &stub[..]].concat(); // stp x16, x30, [sp, #-16]!; …
        let parts = [&function[..], &with_a_frame, &calls, &first_stub, &[0xd503_201f], &stub];
        let code: Vec<u8> = parts.concat().into_iter().flat_map(u32::to_le_bytes).collect();
        let mut image = Image::of_code(&code, FileAddress::new(0x1000));
        image.architecture = Architecture::Aarch64;
        for (name, address, size) in [("a", 0x1000, 16), ("b", 0x1010, 8), ("c", 0x1018, 8), ("d", 0x1000, 12)] {
            image.symbols.add_function(name, Symbol { address: FileAddress::new(address), size });
        }
        let mut found = bare(&image, Some((0x1020, 40)));
        found.sort_unstable();
        let expected = [(0x1000, 0x100c), (0x1000, 0x1010), (0x1034, 0x1048)];
        assert_eq!(found, expected.map(|(begin, end)| (FileAddress::new(begin), FileAddress::new(end))));
    }

    #[test]
    fn a_part_has_the_name_of_its_function() {
        for (name, expected) in [
            ("qsort_r", "qsort_r"),
            ("qsort_r.cold", "qsort_r"),
            ("msort_with_tmp.constprop.0.cold", "msort_with_tmp"),
            ("rehash.isra.0", "rehash"),
            ("msort_with_tmp.part.0", "msort_with_tmp.part.0"),
            (".cold", ".cold"),
        ] {
            assert_eq!(own_name(name), expected);
        }
    }
}
