//! Makes links in the kernel, which places breakpoints in a process.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::rc::Rc;
use std::time::Instant;

use aya_obj::generated::bpf_attach_type::{BPF_PERF_EVENT, BPF_TRACE_UPROBE_MULTI};
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, PERF_FLAG_FD_CLOEXEC, bpf_attr, bpf_cmd, perf_event_attr};

use rustix::fs::fstat;

use super::request::{Attach, Kind};
use crate::mappers::obstacle;
use crate::multi::{bpf, zeroed};
use crate::obstacle::Obstacle;

/// The bit in `config` that makes a uprobe event wait for the return
/// (`/sys/bus/event_source/devices/uprobe/format/retprobe`).
const AT_RETURN: u64 = 1;

/// A link that is kept.
pub struct Kept {
    pub link: OwnedFd,
    /// The keeper's end of its sockets.
    pub agent: OwnedFd,
    /// Where it is placed; `None` if it cannot be told who maps that.
    pub place: Option<Place>,
    /// When to look again whether it can be released.
    pub again: Option<Instant>,
}

/// A part of an executable, and the program that looks who maps it.
#[derive(Clone)]
pub struct Place {
    look: Rc<OwnedFd>,
    exe: Rc<OwnedFd>,
    /// The first file offset, and the last.
    offsets: (u64, u64),
}

impl Place {
    /// Returns the place of a link. Shares the descriptors of others in the same file, as each server may have many.
    pub fn of(look: Rc<OwnedFd>, exe: Rc<OwnedFd>, attach: &Attach, others: &[Kept]) -> Option<Self> {
        let offsets = attach.sites.iter().map(|(offset, _)| *offset);
        let offsets = (offsets.clone().min()?, offsets.max()?);
        let file = |exe: &OwnedFd| fstat(exe).map(|found| (found.st_dev, found.st_ino)).ok();
        let own = file(&exe);
        let mut others = others.iter().filter_map(|other| other.place.as_ref());
        let shared = others.find(|other| own.is_some() && file(&other.exe) == own);
        Some(Self { look, exe: shared.map_or(exe, |other| other.exe.clone()), offsets })
    }

    /// Returns whether it is the same executable, as far as is known.
    pub fn shares(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.exe, &other.exe)
    }

    /// Returns all places in the same executable as one.
    pub fn around(&self, others: &[Self]) -> Self {
        let mut around = self.clone();
        for other in others.iter().filter(|other| self.shares(other)) {
            let (first, last) = &mut around.offsets;
            *first = other.offsets.0.min(*first);
            *last = other.offsets.1.max(*last);
        }
        around
    }

    /// Returns what keeps a link from being made or released here now. What cannot be looked at is no obstacle.
    pub fn obstacle(&self) -> Option<Obstacle> {
        let (first, last) = self.offsets;
        obstacle(self.look.as_fd(), self.exe.as_fd(), first, last).ok().flatten()
    }
}

/// Makes the link that attaches a program to a process that runs this open executable.
///
/// # Errors
///
/// Returns the kernel's error: `EINVAL` if it has no such links.
pub fn create(program: BorrowedFd<'_>, exe: BorrowedFd<'_>, attach: &Attach) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{}", exe.as_raw_fd()))?;
    let mut attr = zeroed();
    attr.link_create.__bindgen_anon_1.prog_fd = program.as_raw_fd().cast_unsigned();
    match attach.kind {
        Kind::Multi => by_multi_link(attr, &path, attach),
        Kind::Perf(event) => by_perf_event(attr, &path, event, attach),
    }
}

fn by_multi_link(mut attr: bpf_attr, path: &CString, attach: &Attach) -> io::Result<OwnedFd> {
    let (offsets, cookies): (Vec<u64>, Vec<u64>) = attach.sites.iter().copied().unzip();
    attr.link_create.attach_type = BPF_TRACE_UPROBE_MULTI as u32;
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let multi = unsafe { &mut attr.link_create.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = offsets.as_ptr() as u64;
    multi.cookies = cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(offsets.len()).map_err(io::Error::other)?;
    multi.flags = match attach.is_return {
        true => BPF_F_UPROBE_MULTI_RETURN,
        false => 0,
    };
    multi.pid = attach.pid;
    // SAFETY: the path ends in 0, and the arrays have `cnt` elements. All three outlive the call.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }
}

fn by_perf_event(mut attr: bpf_attr, path: &CString, event: u32, attach: &Attach) -> io::Result<OwnedFd> {
    let [(offset, cookie)] = attach.sites[..] else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    // SAFETY: integers only, so zero is valid.
    let mut uprobe: perf_event_attr = unsafe { std::mem::zeroed() };
    uprobe.size = u32::try_from(size_of::<perf_event_attr>()).map_err(io::Error::other)?;
    uprobe.type_ = event;
    uprobe.config = match attach.is_return {
        true => AT_RETURN,
        false => 0,
    };
    uprobe.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    uprobe.__bindgen_anon_4.config2 = offset;
    let pid = i32::try_from(attach.pid).map_err(io::Error::other)?;
    // SAFETY: the path ends in 0, and outlives the call.
    let event = unsafe { perf_event(&uprobe, pid) }?;
    attr.link_create.__bindgen_anon_2.target_fd = event.as_raw_fd().cast_unsigned();
    attr.link_create.attach_type = BPF_PERF_EVENT as u32;
    attr.link_create.__bindgen_anon_3.perf_event.bpf_cookie = cookie;
    // The link keeps the event.
    // SAFETY: it has no pointers.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }
}

/// Opens an event of one thread, on whatever CPU it runs.
///
/// # Safety
///
/// All pointers in `attr` must be valid during the call.
pub unsafe fn perf_event(attr: &perf_event_attr, tid: i32) -> io::Result<OwnedFd> {
    // SAFETY: `attr` is as long as it says; the caller guarantees that what it points to is valid.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attr, tid, -1, -1, libc::c_ulong::from(PERF_FLAG_FD_CLOEXEC))
    };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just opened it for this caller.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
