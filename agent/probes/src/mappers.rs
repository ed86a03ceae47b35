//! Looks whether a probe can be placed without holding up the host.
//!
//! While the kernel places a probe or takes it off, no process can fork (`dup_mmap_sem`), and it takes the lock
//! (`mmap_lock`) of each process that maps this part of the file, whoever that is and whatever the link's filter says
//! (`register_for_each_vma`, kernel/events/uprobes.c, the same from Linux 6.1 to 6.18). Whoever may read the file can
//! map it, hold his own lock for as long as he likes, and so hold up all. So the keeper looks first who maps it, and
//! whose lock is held.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use aya::programs::Iter;
use aya::{Btf, EbpfLoader};
use evictscope_abi::{MAPPED_AT, MOST_MAPPINGS, Mapper};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::gettid;

use super::error::ProbeError;
use super::heap::give_back;
use super::iterator::{self, iterator};
use super::kernel_types;
use super::obstacle::Obstacle;

const PROGRAM: &str = "mapper_look";
/// How often to look at a lock that is held: locks of busy processes are held now and then.
const LOOKS: usize = 20;
/// How many looks that see none held are enough: one may come just between two holds.
const ENOUGH: usize = 2;
/// The time between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// `FUSE_SUPER_MAGIC` of the kernel.
const FUSE: u32 = 0x6573_5546;
const PAGE: u64 = 4096;
const RECORD: usize = size_of::<Mapper>();

/// Loads the program that looks.
///
/// # Errors
///
/// Fails if the kernel does not describe itself (no BTF), is older than Linux 6.1, does not allow it, or refuses the
/// program.
pub fn load() -> Result<OwnedFd, ProbeError> {
    let offsets = kernel_types::of_mappers()?;
    let btf = Btf::from_sys_fs().map_err(|error| ProbeError::NoBtf(error.to_string()))?;
    let object = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/evictscope-mappers"));
    let mut loader = EbpfLoader::new();
    let loader = loader.btf(Some(&btf));
    let loader = loader.override_global("OFFSETS", &offsets[..], true);
    let ebpf = iterator::load(loader, object, PROGRAM, "task_vma", &btf)?;
    let program = ebpf.program(PROGRAM).ok_or(ProbeError::Object(PROGRAM))?;
    let program: &Iter = program.try_into().map_err(ProbeError::program)?;
    let fd = program.fd().map_err(ProbeError::program)?.as_fd();
    let fd = fd.try_clone_to_owned().map_err(ProbeError::Mapping);
    give_back();
    fd
}

/// Returns what keeps probes between the file offsets `first` and `last` from being placed or taken off now. `file`
/// must be open for reading; nobody else may use [`MAPPED_AT`]. Takes [`LOOKS`] times [`PAUSE`] at most, and one
/// [`PAUSE`] if nobody holds a lock.
///
/// # Errors
///
/// Fails if it cannot be told.
pub fn obstacle(program: BorrowedFd<'_>, file: BorrowedFd<'_>, first: u64, last: u64) -> io::Result<Option<Obstacle>> {
    let mapped = Mapped::of(file, first, last)?;
    let mut suspects: Option<Vec<Mapper>> = None;
    let mut free = 0;
    for _ in 0..LOOKS {
        let mut now = mapped.look(program)?;
        let end = now.pop().filter(|end| end.space == Mapper::END);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
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
            let is_still = |one: &Mapper| now.iter().any(|other| other.space == one.space);
            match &mut suspects {
                Some(suspects) => suspects.retain(is_still),
                None => suspects = Some(now),
            }
        }
        sleep(PAUSE);
    }
    let held = suspects.into_iter().flatten().next();
    Ok(held.map(|one| Obstacle::Locked(one.pid)))
}

/// A part of a file, mapped for the program to find.
struct Mapped {
    at: *mut std::ffi::c_void,
    bytes: usize,
}

impl Mapped {
    fn of(file: BorrowedFd<'_>, first: u64, last: u64) -> io::Result<Self> {
        let begin = first & !(PAGE - 1);
        let bytes = usize::try_from(last - begin + 1).map_err(io::Error::other)?;
        let at = MAPPED_AT as *mut std::ffi::c_void;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: nothing is mapped there, or it fails; and nobody can access what it maps.
        let at = unsafe { mmap(at, bytes, ProtFlags::empty(), flags, file, begin) }?;
        Ok(Self { at, bytes })
    }

    /// Returns whose lock is held, and the end.
    fn look(&self, program: BorrowedFd<'_>) -> io::Result<Vec<Mapper>> {
        let tid = gettid().as_raw_nonzero().get().cast_unsigned();
        let mut bytes = Vec::new();
        File::from(iterator(program, tid)?).read_to_end(&mut bytes)?;
        let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (records, _) = bytes.as_chunks::<RECORD>();
        let records = records.iter().map(|record| Mapper {
            space: u64::from(word(record)) | u64::from(word(&record[4..])) << 32,
            pid: word(&record[8..]),
            mappings: word(&record[12..]),
        });
        Ok(records.collect())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this mapped it, and nothing refers to it.
        let _ = unsafe { munmap(self.at, self.bytes) };
    }
}
