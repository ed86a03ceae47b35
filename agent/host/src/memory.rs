//! Finds where a process's executable is loaded, and reads words of its memory.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;

use anyhow::{Context as _, anyhow};
use evictscope_model::{FileAddress, FileOffset, ProcessAddress};
use procfs::page_size;
use procfs::process::Process;
use rustix::io::Errno;

use crate::confinement::{Confinement, yama_forbids};
use crate::process::exe_proc_path;

/// How many bytes a breakpoint takes.
pub(crate) const BREAKPOINT: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

/// Returns whether this code is a breakpoint: `brk`, whose operand says who wrote it, or `int3`.
pub(crate) fn is_breakpoint(code: &[u8]) -> bool {
    if cfg!(target_arch = "aarch64") {
        matches!(code, [low, _, high, 0xd4] if low & 0x1f == 0 && high & 0xe0 == 0x20)
    } else {
        code == [0xcc]
    }
}

/// Key of the program's entry point in the auxiliary vector, from the kernel's `auxvec.h`.
const AT_ENTRY: u64 = 9;
const WORD: usize = size_of::<u64>();

/// Returns what to add to a virtual address of the ELF file to get the address in the process: 0 for an executable that
/// is not position-independent. `entry` is the file's `e_entry`. Fails if the process has ended, may not be looked
/// into, or now runs another program.
pub fn load_bias(pid: u32, entry: FileAddress) -> anyhow::Result<u64> {
    let vector = Process::new(pid.cast_signed())
        .and_then(|process| process.auxv())
        .map_err(|error| anyhow!("cannot read /proc/{pid}/auxv ({error}): run as root, if the process still runs"))?;
    let actual = vector.get(&AT_ENTRY).copied().map(ProcessAddress::new);
    let actual = actual.with_context(|| format!("/proc/{pid}/auxv has no entry point: has the process ended?"))?;
    actual.load_bias(entry).filter(|bias| bias.is_multiple_of(page_size())).with_context(|| {
        format!(
            "process {pid} begins at {actual:#x}, which does not fit the entry point {entry:#x} of \
             its executable: it has started another program in the meantime; try again"
        )
    })
}

/// Returns where a process's code at each of `addresses` is in its file. Fails if the process has ended, may not be
/// looked into, or has no file there.
pub fn offsets_of_code<const N: usize>(pid: u32, addresses: [ProcessAddress; N]) -> io::Result<[FileOffset; N]> {
    let maps = Process::new(pid.cast_signed()).and_then(|process| process.maps()).map_err(io::Error::other)?;
    let mut offsets = [FileOffset::new(0); N];
    for (offset, address) in offsets.iter_mut().zip(addresses.map(ProcessAddress::get)) {
        let is_there = |(begin, end): (u64, u64)| (begin..end).contains(&address);
        let map = maps.iter().find(|map| map.inode != 0 && is_there(map.address));
        let map = map.ok_or_else(|| io::Error::other(format!("no file is mapped at {address:#x}")))?;
        *offset = FileOffset::new(map.offset + (address - map.address.0));
    }
    Ok(offsets)
}

/// The most bytes to read at once for several words.
const RANGE: u64 = 4096;

/// Why a process's memory could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The process has ended, or executes another program.
    #[error("the process has ended, or has started another program")]
    Gone,
    /// It is another user's process.
    #[error(
        "may not read /proc/{0}/mem; {advice}",
        advice = yama_forbids().unwrap_or_else(|| Confinement::of_process().lacks_others())
    )]
    Denied(u32),
    #[error("cannot read the memory of process {0}: {1}")]
    Other(u32, io::Error),
}

/// Words of the memory of a process. It stays the memory of the program that the process ran when this was opened:
/// a program executed later in its place is never read.
#[derive(Debug)]
pub struct Words {
    pid: u32,
    memory: File,
    /// The start and length of each range that is read at once.
    ranges: Vec<(u64, usize)>,
    /// The range of each word, and its offset there.
    places: Vec<(usize, usize)>,
}

impl Words {
    /// Opens the memory of a process. No words are chosen yet. Fails if the process has ended or may not be looked
    /// into.
    pub fn open(pid: u32) -> Result<Self, MemoryError> {
        let memory = File::open(format!("/proc/{pid}/mem")).map_err(|error| MemoryError::of(pid, error))?;
        Ok(Self { pid, memory, ranges: Vec::new(), places: Vec::new() })
    }

    pub fn choose(&mut self, addresses: &[ProcessAddress]) {
        let mut sorted: Vec<u64> = addresses.iter().map(|address| address.get()).collect();
        sorted.sort_unstable();
        self.ranges.clear();
        for address in sorted {
            let end = address.saturating_add(WORD as u64);
            match self.ranges.last_mut() {
                Some((begin, len)) if end - *begin <= RANGE => *len = (end - *begin) as usize,
                _ => self.ranges.push((address, WORD)),
            }
        }
        let place = |address: &ProcessAddress| {
            let range = self.ranges.partition_point(|(begin, _)| *begin <= address.get()) - 1;
            (range, (address.get() - self.ranges[range].0) as usize)
        };
        self.places = addresses.iter().map(place).collect();
    }

    /// Reads what is at an address now. Returns whether all of it is mapped.
    pub fn fill(&self, address: ProcessAddress, bytes: &mut [u8]) -> bool {
        let read = self.memory.read_at(bytes, address.get());
        read.is_ok_and(|read| read == bytes.len())
    }

    /// Returns at how many of `addresses` there is no breakpoint now. Fails if the process has ended or runs another
    /// program.
    pub fn without_breakpoint(&self, addresses: &[ProcessAddress]) -> Result<usize, MemoryError> {
        let mut without = 0;
        for address in addresses {
            let mut code = [0; BREAKPOINT];
            match self.memory.read_at(&mut code, address.get()) {
                // The address space is gone.
                Ok(0) => return Err(MemoryError::Gone),
                // If nothing is mapped there, no probe is, either.
                Ok(_) | Err(_) => without += usize::from(!is_breakpoint(&code)),
            }
        }
        // The kernel places nothing in an address space that its process has left, although it can be read as long as
        // somebody else looks into it, too (`exit_mm`, kernel/exit.c).
        if without > 0 && !self.is_in_use() { Err(MemoryError::Gone) } else { Ok(without) }
    }

    /// Returns whether the process has not left its address space, as it does when it ends.
    fn is_in_use(&self) -> bool {
        let exe = fs::read_link(exe_proc_path(self.pid));
        !exe.is_err_and(|error| matches!(MemoryError::of(self.pid, error), MemoryError::Gone))
    }

    /// Reads the words, in the order in which they were chosen. They are not read at the same moment: a running server
    /// may change one in between. Fails if the process has ended or runs another program, or nothing is mapped at one
    /// of the addresses.
    pub fn read(&self) -> Result<Vec<u64>, MemoryError> {
        let mut ranges = Vec::new();
        for (begin, len) in &self.ranges {
            let mut bytes = vec![0; *len];
            match self.memory.read_at(&mut bytes, *begin) {
                // The address space is gone: the kernel then returns 0 at any address.
                Ok(0) => return Err(MemoryError::Gone),
                Ok(read) if read < *len => {
                    return Err(MemoryError::of(self.pid, io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(_) => ranges.push(bytes),
                Err(error) => return Err(MemoryError::of(self.pid, error)),
            }
        }
        let word = |(range, offset): &(usize, usize)| {
            let mut word = [0; WORD];
            word.copy_from_slice(&ranges[*range][*offset..*offset + WORD]);
            u64::from_ne_bytes(word)
        };
        Ok(self.places.iter().map(word).collect())
    }
}

impl MemoryError {
    fn of(pid: u32, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Gone,
            io::ErrorKind::PermissionDenied => Self::Denied(pid),
            _ if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Self::Gone,
            _ => Self::Other(pid, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::Command;

    use evictscope_testkit::process::Owned;
    use object::{File, Object as _};

    use super::{FileAddress, MemoryError, ProcessAddress, Words, load_bias};

    static HERE: u64 = 0x1122_3344_5566_7788;
    static FAR: [u64; 2_000] = [7; 2_000];

    fn words(addresses: &[ProcessAddress]) -> Result<Vec<u64>, MemoryError> {
        let mut words = Words::open(std::process::id())?;
        words.choose(addresses);
        words.read()
    }

    #[test]
    fn words_of_a_process_are_read_in_order() -> Result<(), MemoryError> {
        let local = Box::new(42_u64);
        let addresses = [&raw const FAR[1_999], &raw const HERE, &raw const *local, &raw const FAR[0]];
        assert_eq!(words(&addresses.map(|word| ProcessAddress::new(word as u64)))?, [7, HERE, 42, 7]);
        assert!(words(&[])?.is_empty());
        let mut bytes = [0; 16];
        let memory = Words::open(std::process::id())?;
        assert!(memory.fill(ProcessAddress::new(&raw const FAR[3] as u64), &mut bytes));
        assert_eq!(bytes.as_chunks().0, [7_u64.to_ne_bytes(); 2]);
        assert!(!memory.fill(ProcessAddress::new(8), &mut bytes));
        Ok(())
    }

    #[test]
    fn an_address_that_is_not_mapped_is_an_error() {
        let here = ProcessAddress::new(&raw const HERE as u64);
        for addresses in [[ProcessAddress::new(8), here], [here, ProcessAddress::new(8)]] {
            let read = words(&addresses);
            assert!(matches!(read, Err(MemoryError::Other(..))), "{read:?}");
        }
    }

    #[test]
    fn nothing_is_read_of_a_program_that_was_executed_later() -> anyhow::Result<()> {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo ready; read line; exec cat"]);
        let (process, mut input, output) = Owned::start_with_pipes(&mut shell)?;
        let (mut output, mut line) = (BufReader::new(output), String::new());
        output.read_line(&mut line)?;
        let mut words = Words::open(process.pid())?;
        let vector = procfs::process::Process::new(process.pid().cast_signed())?.auxv()?;
        words.choose(&[ProcessAddress::new(vector[&super::AT_ENTRY])]);
        words.read()?;
        input.write_all(b"go\nthere\n")?;
        line.clear();
        output.read_line(&mut line)?;
        assert_eq!(line, "there\n", "the other program answers");
        let read = words.read();
        assert!(matches!(read, Err(MemoryError::Gone)), "{read:?}");
        Ok(())
    }

    #[test]
    fn the_load_bias_leads_from_the_file_to_the_process() -> anyhow::Result<()> {
        let bytes = std::fs::read("/proc/self/exe")?;
        let pid = std::process::id();
        let entry = FileAddress::new(File::parse(&*bytes)?.entry());
        let bias = load_bias(pid, entry)?;
        let maps = procfs::process::Process::myself()?.maps()?;
        let begins = entry.at(bias).get();
        let mapped = maps.iter().any(|map| {
            (map.address.0..map.address.1).contains(&begins)
                && map.perms.contains(procfs::process::MMPermissions::EXECUTE)
        });
        assert!(mapped, "{begins:#x} is not in an executable mapping");

        let other = load_bias(pid, entry.wrapping_add(1)).map_err(|error| error.to_string());
        assert!(other.is_err_and(|error| error.contains("has started another program")));
        Ok(())
    }
}
