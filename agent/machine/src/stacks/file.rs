//! What is kept of one file that a process has mapped.

use std::collections::HashMap;

use borsh::{BorshDeserialize, BorshSerialize};
use object::Endianness;
use object::read::elf::ElfFile64;

use super::functions::{Function, Names, functions, returns};
use super::registers::Registers;
use super::unwind::{Caller, Tables, Work};
use crate::elf::address::{FileAddress, FileOffset};
use crate::elf::error::ElfError;
use crate::elf::frames::{Frames, UnwindTable};
use crate::elf::image::Image;

/// How far past the entry point the startup code may extend if no table covers it, in bytes. It is some 40 bytes long.
const START: u64 = 64;

/// The functions of an executable or a shared library, and its unwind tables. It keeps no reference to the file's bytes.
#[derive(BorshDeserialize, BorshSerialize)]
pub struct CodeFile {
    functions: HashMap<FileAddress, Function>,
    frames: Frames,
    tables: Option<Tables>,
    /// The address of each code segment, and where it begins and ends in the file, as it is mapped.
    segments: Vec<(FileAddress, u64, u64)>,
    entry: FileAddress,
    /// The return addresses of calls of traced functions, by the function's number.
    returns: HashMap<usize, Vec<FileAddress>>,
}

impl CodeFile {
    /// Reads the file whose whole content is `data`, and the names in its debug file, whose whole content is `debug`. Functions
    /// also get the names in `names`, even if the file has none.
    ///
    /// # Errors
    ///
    /// Fails if it is not an x86-64 ELF executable or shared library.
    pub fn read(
        data: &[u8],
        debug: Option<&[u8]>,
        names: Option<&dyn Names>,
    ) -> Result<Self, ElfError> {
        let mut image = Image::parse(data)?;
        if let Some(debug) = debug {
            image.add_symbols_of(debug)?;
        }
        let file = ElfFile64::<Endianness>::parse(data)?;
        let tables = UnwindTable::find(&file).and_then(|table| Tables::copy(&table));
        let traced = names.map(|names| names.traced(&mut image));
        let traced = traced.unwrap_or_default();
        Ok(Self {
            functions: functions(&image, &traced, names),
            returns: returns(&image, &traced),
            tables,
            segments: image.mapped_code(),
            entry: image.entry(),
            frames: image.frames,
        })
    }

    /// Returns the address in code of the byte at the file offset of a process's mapping; the load bias follows from it and the
    /// mapping's address.
    pub fn mapped_code(&self, offset: FileOffset) -> Option<FileAddress> {
        let mut segments = self.segments.iter();
        let is_it =
            |(_, begin, end): &&(FileAddress, u64, u64)| (*begin..*end).contains(&offset.get());
        let (address, begin, _) = segments.find(is_it)?;
        Some(address.wrapping_add(offset.get() - begin))
    }

    /// Returns the function at an address, if it has a name.
    pub fn function(&self, at: FileAddress) -> Option<&Function> {
        self.functions.get(&self.beginning(at)?)
    }

    /// Returns where the function, or the part of one, at an address begins.
    pub fn beginning(&self, at: FileAddress) -> Option<FileAddress> {
        self.frames.at(at).map(|frame| frame.start)
    }

    /// Returns where calls of the function at an address return to, for traced functions only. Calls through a pointer are
    /// missing, and what only looks like a call may be included.
    pub fn returns(&self, at: FileAddress) -> &[FileAddress] {
        let traced = self.function(at).and_then(|function| function.traced);
        let found = traced.and_then(|traced| self.returns.get(&traced));
        found.map_or(&[], Vec::as_slice)
    }

    /// Returns whether an address is in the function with which the process begins.
    pub fn is_start(&self, at: FileAddress) -> bool {
        match self.frames.at(at) {
            Some(frame) => (frame.start..frame.end).contains(&self.entry),
            None => at.checked_sub(self.entry).is_some_and(|far| far < START),
        }
    }

    /// Returns what called the frame with these registers, whose code is at `at`. `read` returns the 8 bytes of the stack
    /// at an address.
    ///
    /// Returns `None` if the tables do not say, or the copied stack does not extend that far.
    pub fn caller(
        &self,
        work: &mut Work,
        at: FileAddress,
        registers: &Registers,
        read: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Caller> {
        let entry = self.frames.at(at)?;
        (self.tables.as_ref()?).caller(work, entry, at, registers, read)
    }
}
