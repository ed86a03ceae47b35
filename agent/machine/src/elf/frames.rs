//! Where functions begin and end according to the unwind tables (`.eh_frame`), which `strip` leaves in place.
//!
//! A table entry covers a function, or a part of one that the compiler moved elsewhere (`.cold`). Such a part is
//! entered by a jump, mostly after its function has set up a frame. So an entry is a part if its first row does not
//! find the caller's frame right above the return address.

use std::collections::HashMap;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::FileAddress;
use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, CieOrFde, CommonInformationEntry, EhFrame,
    EhFrameHdr, EhFrameOffset, EndianSlice, LittleEndian, Reader, UnwindSection as _,
};
use object::elf::PT_GNU_EH_FRAME;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _};

use crate::isa::Architecture;

/// The most entries to read from one file.
const MAX_FRAMES: usize = 500_000;
/// The largest common entry to read, in bytes: it is read again for each entry that refers to it.
const MAX_COMMON_ENTRY: usize = 256;
/// The section in which BOLT leaves the code that it was given.
const BOLTED: &str = ".bolt.org.text";

/// How gimli reads the bytes of a table.
pub type TableBytes<'a> = EndianSlice<'a, LittleEndian>;

/// What one table entry covers.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Virtual address of the first byte.
    pub start: FileAddress,
    /// Virtual address just past the last byte.
    pub end: FileAddress,
    /// Whether it can be the beginning of a function.
    pub is_entry: bool,
    /// Where the entry is in the table, in bytes from the start.
    pub offset: usize,
}

/// The table entries of an executable by address; empty if it has no unwind tables.
#[derive(BorshDeserialize, BorshSerialize, Debug, Default)]
pub struct Frames {
    sorted: Vec<Frame>,
    /// Code that BOLT has copied elsewhere, and that no longer runs.
    dead: Option<(FileAddress, FileAddress)>,
}

impl Frames {
    /// Reads the tables, found by their section or else by their segment, up to the first broken entry.
    pub fn read(file: &ElfFile64<'_, Endianness>, architecture: Architecture) -> Self {
        let table = UnwindTable::find(file);
        let mut frames = table.map_or_else(Self::default, |table| Self::parse(table.data, &table.bases, architecture));
        frames.dead = file.section_by_name(BOLTED).map(|section| {
            let start = FileAddress::new(section.address());
            (start, start.saturating_add(section.size()))
        });
        frames
    }

    /// Reads `data`, the content of `.eh_frame`, up to the first broken entry.
    pub fn parse(data: &[u8], bases: &BaseAddresses, architecture: Architecture) -> Self {
        let mut sorted = entries(data, bases, architecture);
        sorted.sort_unstable_by_key(|frame| (frame.start, frame.end));
        Self { sorted, dead: None }
    }

    /// Returns all entries.
    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        self.sorted.iter()
    }

    /// Adds what functions that no entry covers take.
    pub fn extend(&mut self, functions: Vec<Frame>) {
        self.sorted.extend(functions);
        self.sorted.sort_unstable_by_key(|frame| (frame.start, frame.end));
    }

    /// Returns the entry that covers `address`, if code runs there.
    pub fn at(&self, address: FileAddress) -> Option<Frame> {
        let behind = self.sorted.partition_point(|frame| frame.start <= address);
        let frame = self.sorted.get(behind.checked_sub(1)?)?;
        let is_dead = self.dead.is_some_and(|(start, end)| (start..end).contains(&frame.start));
        (address < frame.end && !is_dead).then_some(*frame)
    }

    /// Returns whether a function can begin at `address`.
    pub fn is_entry(&self, address: FileAddress) -> bool {
        self.at(address).is_some_and(|frame| frame.start == address && frame.is_entry)
    }
}

/// The content of `.eh_frame`.
pub struct UnwindTable<'data> {
    /// All of it; it may be followed by more.
    pub data: &'data [u8],
    /// What its pointers are relative to.
    pub bases: BaseAddresses,
}

impl<'data> UnwindTable<'data> {
    /// Finds it by its section, or else by its segment.
    pub fn find(file: &ElfFile64<'data, Endianness>) -> Option<Self> {
        let mut bases = BaseAddresses::default();
        if let Some(text) = file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let (address, data) = by_section(file).or_else(|| by_segment(file))?;
        Some(Self { data, bases: bases.set_eh_frame(address) })
    }
}

/// Returns the address and content of `.eh_frame`.
fn by_section<'data>(file: &ElfFile64<'data, Endianness>) -> Option<(u64, &'data [u8])> {
    let section = file.section_by_name(".eh_frame")?;
    Some((section.address(), section.data().ok()?))
}

/// Returns the address and content of `.eh_frame` if section headers were removed: the header in `PT_GNU_EH_FRAME`
/// points to it, and the table marks its own end.
fn by_segment<'data>(file: &ElfFile64<'data, Endianness>) -> Option<(u64, &'data [u8])> {
    let endian = file.endian();
    let headers = file.elf_program_headers();
    let header = headers.iter().find(|header| header.p_type(endian) == PT_GNU_EH_FRAME)?;
    let address = header.p_vaddr(endian);
    let bases = BaseAddresses::default().set_eh_frame_hdr(address);
    let content = header.data(endian, file.data()).ok()?;
    let address = EhFrameHdr::new(content, LittleEndian).parse(&bases, 8).ok()?.eh_frame_ptr().direct().ok()?;
    headers.iter().find_map(|segment| {
        let distance = address.checked_sub(segment.p_vaddr(endian))?;
        let skip = usize::try_from(distance).ok()?;
        let is_loaded = segment.p_type(endian) == object::elf::PT_LOAD;
        let content = segment.data(endian, file.data()).ok()?;
        Some((address, content.get(skip..).filter(|_| is_loaded)?))
    })
}

fn entries(data: &[u8], bases: &BaseAddresses, architecture: Architecture) -> Vec<Frame> {
    // Where the caller's frame begins on entry to a function: above the return address, if the call pushed it.
    let pushed = architecture.convention().pushed_by_call.into();
    let at_entry = (architecture.unwinding().stack_pointer, pushed);
    let mut section = EhFrame::new(data, LittleEndian);
    section.set_vendor(architecture.unwinding().vendor);
    let mut found = Vec::new();
    // Where the caller's frame begins according to a common entry alone.
    let mut common = HashMap::new();
    let mut entries = section.entries(bases);
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(common_entry) else { continue };
        let shared = *common
            .entry(entry.cie().offset())
            .or_insert_with(|| first_row(entry.cie().instructions(&section, bases), None));
        let first = first_row(entry.instructions(&section, bases), shared);
        found.push(Frame {
            start: FileAddress::new(entry.initial_address()),
            end: FileAddress::new(entry.end_address()),
            is_entry: first == Some(at_entry),
            offset: entry.offset(),
        });
        if found.len() >= MAX_FRAMES {
            break;
        }
    }
    found
}

/// Reads a common entry, if it is not too large.
pub fn common_entry<'a>(
    section: &EhFrame<TableBytes<'a>>,
    bases: &BaseAddresses,
    offset: EhFrameOffset,
) -> gimli::Result<CommonInformationEntry<TableBytes<'a>>> {
    let entry = section.cie_from_offset(bases, offset)?;
    if entry.entry_len() <= MAX_COMMON_ENTRY { Ok(entry) } else { Err(gimli::Error::OffsetOutOfBounds(0)) }
}

/// Returns the register and distance that locate the caller's frame in the first row. `before` is the rule that applies
/// before the instructions.
fn first_row<R: Reader>(
    mut instructions: CallFrameInstructionIter<'_, R>,
    before: Option<(gimli::Register, u64)>,
) -> Option<(gimli::Register, u64)> {
    let mut rule = before;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::DefCfa { register, offset } => rule = Some((register, offset)),
            CallFrameInstruction::DefCfaRegister { register } => rule = rule.map(|(_, offset)| (register, offset)),
            CallFrameInstruction::DefCfaOffset { offset } => rule = rule.map(|(register, _)| (register, offset)),
            CallFrameInstruction::DefCfaSf { .. }
            | CallFrameInstruction::DefCfaOffsetSf { .. }
            | CallFrameInstruction::DefCfaExpression { .. } => rule = None,
            CallFrameInstruction::AdvanceLoc { .. } | CallFrameInstruction::SetLoc { .. } => break,
            _ => {}
        }
    }
    rule
}
