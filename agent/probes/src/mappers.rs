//! Looks whether a probe can be placed without holding up the host.
//!
//! While the kernel places a probe or takes it off, no process can fork (`dup_mmap_sem`), and it takes the lock
//! (`mmap_lock`) of each process that maps this part of the file, whoever that is and whatever the link's filter says
//! (`register_for_each_vma`, kernel/events/uprobes.c, the same from Linux 6.1 to 6.18). Whoever may read the file can
//! map it, hold his own lock for as long as he likes, and so hold up all. So the keeper looks first who maps it, and
//! whose lock is held.

use std::ffi::c_void;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use evictscope_abi::{MAPPED_AT, MOST_MAPPINGS, Mapper};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::param::page_size;
use rustix::thread::gettid;

use super::bpf::{load_iterator, open_iterator, take_record};
use super::error::{Obstacle, ProbeError};
use super::kernel_types;

const PROGRAM: &str = "mapper_look";
/// How often to look at a lock that is held: locks of busy processes are held now and then.
const LOOKS: usize = 20;
/// How many looks that see none held are enough: one may come just between two holds.
const ENOUGH: usize = 2;
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// `FUSE_SUPER_MAGIC` of the kernel.
const FUSE: u32 = 0x6573_5546;

/// Loads the program that looks. Fails if the kernel does not describe itself (no BTF), is older than Linux 6.1, does
/// not allow it, or refuses the program.
pub fn load() -> Result<OwnedFd, ProbeError> {
    let offsets = kernel_types::of_mappers()?;
    let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-mappers"));
    load_iterator(object, PROGRAM, "task_vma", &[("OFFSETS", &offsets), ("PAGE_BITS", &[page_size().trailing_zeros()])])
}

/// Returns what keeps probes between the file offsets `first` and `last` from being placed or taken off now. `file`
/// must be open for reading; nobody else may use [`MAPPED_AT`]. Takes [`LOOKS`] times [`PAUSE`] at most, and one
/// [`PAUSE`] if nobody holds a lock. Fails if it cannot be told.
pub fn obstacle(program: BorrowedFd<'_>, file: BorrowedFd<'_>, first: u64, last: u64) -> io::Result<Option<Obstacle>> {
    let mapped = MappedRange::of(file, first, last)?;
    let mut suspects: Option<Vec<Mapper>> = None;
    let mut free = 0;
    for _ in 0..LOOKS {
        let mut now = mapped.look(program)?;
        let end = now.pop().filter(|end| end.space == Mapper::END).ok_or(io::ErrorKind::UnexpectedEof)?;
        if end.pid == FUSE {
            return Ok(Some(Obstacle::InUserSpace));
        }
        if end.mappings >= MOST_MAPPINGS {
            return Ok(Some(Obstacle::Crowded));
        }
        free = if now.is_empty() { free + 1 } else { 0 };
        if free == ENOUGH {
            return Ok(None);
        }
        if !now.is_empty() {
            // Those that were held whenever any was.
            let is_still = |suspect: &Mapper| now.iter().any(|held| held.space == suspect.space);
            if let Some(suspects) = &mut suspects { suspects.retain(is_still) } else { suspects = Some(now) }
        }
        sleep(PAUSE);
    }
    Ok(suspects.into_iter().flatten().next().map(|held| Obstacle::Locked(held.pid)))
}

/// A part of a file, mapped for the program to find.
struct MappedRange {
    at: *mut c_void,
    bytes: usize,
}

impl MappedRange {
    fn of(file: BorrowedFd<'_>, first: u64, last: u64) -> io::Result<Self> {
        let begin = first & !(page_size() as u64 - 1);
        let bytes = usize::try_from(last - begin + 1).map_err(io::Error::other)?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing is mapped there, or it fails; and nobody can access what it maps.
        let at = unsafe { mmap(MAPPED_AT as *mut c_void, bytes, ProtFlags::empty(), flags, file, begin) }?;
        Ok(Self { at, bytes })
    }

    /// Returns whose lock is held, and the end.
    fn look(&self, program: BorrowedFd<'_>) -> io::Result<Vec<Mapper>> {
        let tid = gettid().as_raw_nonzero().get().cast_unsigned();
        let mut bytes = Vec::new();
        File::from(open_iterator(program, tid)?).read_to_end(&mut bytes)?;
        let mut left = &bytes[..];
        Ok(std::iter::from_fn(|| take_record(&mut left)).collect())
    }
}

impl Drop for MappedRange {
    fn drop(&mut self) {
        // SAFETY: this mapped it, and nothing refers to it.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}
