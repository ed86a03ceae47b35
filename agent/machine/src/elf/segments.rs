//! The segments that the loader maps, and the bytes at their addresses.

use super::address::{FileAddress, FileOffset};

use object::Endianness;
use object::elf::{PF_W, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader as _};

/// The loader maps multiples of this.
const PAGE: u64 = 4096;

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
    /// Reads the program headers.
    pub fn read(file: &ElfFile64<'data, Endianness>) -> Self {
        let endian = file.endian();
        let headers = file.elf_program_headers().iter();
        let segments = headers.filter(|header| header.p_type(endian) == PT_LOAD);
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

    /// Returns whether any segment holds code.
    pub fn has_code(&self) -> bool {
        self.segments.iter().any(|segment| segment.is_code)
    }

    /// Returns each segment with its content.
    pub fn iter(&self) -> impl Iterator<Item = (&Segment, &'data [u8])> + '_ {
        let with_bytes = |segment| Some((segment, self.content(segment)?));
        self.segments.iter().filter_map(with_bytes)
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

    /// Returns the address of each code segment, and where it begins and ends in the file. The loader maps whole pages, so each
    /// begins on a page boundary.
    pub fn mapped_code(&self) -> Vec<(FileAddress, u64, u64)> {
        let code = self.segments.iter().filter(|segment| segment.is_code);
        let mapped = code.map(|segment| {
            let ahead = segment.file_offset % PAGE;
            let address = segment.address.get().wrapping_sub(ahead);
            let end = segment.file_offset.saturating_add(segment.file_size);
            (FileAddress::new(address), segment.file_offset - ahead, end)
        });
        mapped.collect()
    }

    fn content(&self, segment: &Segment) -> Option<&'data [u8]> {
        let start = usize::try_from(segment.file_offset).ok()?;
        let end = start.checked_add(usize::try_from(segment.file_size).ok()?)?;
        self.data.get(start..end.min(self.data.len()))
    }
}
