//! Makes links in the kernel, which places breakpoints in a process, and has them released: by a process for each,
//! because the kernel waits for 50 to 100 ms whenever one is closed, for several at a time.

use std::ffi::{CString, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Instant;

use aya_obj::generated::bpf_attach_type::BPF_TRACE_UPROBE_MULTI;
use aya_obj::generated::{BPF_F_UPROBE_MULTI_RETURN, bpf_cmd, perf_event_attr};
use rustix::fs::fstat;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::request::{Attach, LinkKind};
use crate::bpf::{bpf, link_attr, link_perf_event, perf_event};
use crate::error::Obstacle;
use crate::mappers::obstacle;

/// The bit in `config` that makes a uprobe event wait for the return
/// (`/sys/bus/event_source/devices/uprobe/format/retprobe`).
const AT_RETURN: u64 = 1;

pub struct KeptLink {
    pub link: OwnedFd,
    /// The keeper's end of its sockets.
    pub agent: OwnedFd,
    /// What it is placed in; `None` if it cannot be told who maps that.
    pub range: Option<CodeRange>,
    /// When to look again whether it can be released.
    pub again: Option<Instant>,
}

/// A part of an executable, and the program that looks who maps it.
#[derive(Clone)]
pub struct CodeRange {
    look: Rc<OwnedFd>,
    exe: Rc<OwnedFd>,
    /// The first file offset, and the last.
    offsets: (u64, u64),
}

impl CodeRange {
    /// Returns what a link is placed in. Shares the descriptors of others in the same file, as each server may have
    /// many.
    pub fn of(look: Rc<OwnedFd>, exe: Rc<OwnedFd>, attach: &Attach, others: &[KeptLink]) -> Option<Self> {
        let offsets = attach.sites.iter().map(|(offset, _)| *offset);
        let offsets = (offsets.clone().min()?, offsets.max()?);
        let id = |exe: &OwnedFd| fstat(exe).map(|file| (file.st_dev, file.st_ino)).ok();
        let this = id(&exe);
        let mut others = others.iter().filter_map(|other| other.range.as_ref());
        let shared = others.find(|other| this.is_some() && id(&other.exe) == this);
        Some(Self { look, exe: shared.map_or(exe, |other| other.exe.clone()), offsets })
    }

    /// Returns whether it is in the same executable, as far as is known.
    pub fn shares(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.exe, &other.exe)
    }

    /// Returns one range around all of those in the same executable.
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

/// Makes the link that attaches a program to a process that runs this open executable. Fails with the kernel's error:
/// `EINVAL` if it has no such links.
pub fn create(program: BorrowedFd<'_>, exe: BorrowedFd<'_>, attach: &Attach) -> io::Result<OwnedFd> {
    let path = CString::new(format!("/proc/self/fd/{}", exe.as_raw_fd()))?;
    match attach.kind {
        LinkKind::Multi => by_multi_link(program, &path, attach),
        LinkKind::Perf(event) => by_perf_event(program, &path, event, attach),
    }
}

fn by_multi_link(program: BorrowedFd<'_>, path: &CString, attach: &Attach) -> io::Result<OwnedFd> {
    let (offsets, cookies): (Vec<u64>, Vec<u64>) = attach.sites.iter().copied().unzip();
    let mut attr = link_attr(program, BPF_TRACE_UPROBE_MULTI);
    // SAFETY: all of it is zero, which is valid for every member of the union.
    let multi = unsafe { &mut attr.link_create.__bindgen_anon_3.uprobe_multi };
    multi.path = path.as_ptr() as u64;
    multi.offsets = offsets.as_ptr() as u64;
    multi.cookies = cookies.as_ptr() as u64;
    multi.cnt = u32::try_from(offsets.len()).map_err(io::Error::other)?;
    multi.flags = if attach.is_return { BPF_F_UPROBE_MULTI_RETURN } else { 0 };
    multi.pid = attach.pid;
    // SAFETY: the path ends in 0, and the arrays have `cnt` elements. All three outlive the call.
    unsafe { bpf(bpf_cmd::BPF_LINK_CREATE, &attr) }
}

fn by_perf_event(program: BorrowedFd<'_>, path: &CString, event: u32, attach: &Attach) -> io::Result<OwnedFd> {
    let [(offset, cookie)] = attach.sites[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
    let fill = |uprobe: &mut perf_event_attr| {
        uprobe.type_ = event;
        uprobe.config = if attach.is_return { AT_RETURN } else { 0 };
        uprobe.__bindgen_anon_3.config1 = path.as_ptr() as u64;
        uprobe.__bindgen_anon_4.config2 = offset;
    };
    // SAFETY: the path ends in 0, and outlives the call.
    let event = unsafe { perf_event(attach.pid, fill) }?;
    link_perf_event(program, &event, cookie)
}

/// The most links that are released at a time: more are no faster, and a control group may not allow many processes.
pub const MOST_RELEASERS: usize = 64;
/// The stack of a releaser, bytes: it makes a few system calls.
const STACK: usize = 32 << 10;

/// The processes that release links, each with the socket whose end tells the agent that its link is released. Dropping
/// them waits until they have ended.
#[derive(Default)]
pub struct Releasers(Vec<(Releaser, OwnedFd)>);

struct Releaser {
    process: OwnedFd,
    _descriptors: Box<Descriptors>,
    _stack: Box<[MaybeUninit<u8>]>,
}

/// The descriptors that a releaser keeps. The gate opens once nobody has the key: the releasers that were started
/// together close everything but these, and then the key, as the keeper does. So each of them has the last descriptor
/// of its link.
struct Descriptors {
    link: RawFd,
    gate: RawFd,
    key: RawFd,
}

impl Releasers {
    pub fn release(&mut self, links: Vec<KeptLink>) {
        let gate = if links.is_empty() { None } else { pipe_with(PipeFlags::CLOEXEC).ok() };
        // A link without a releaser is released when this returns.
        let Some((gate, key)) = gate else { return };
        let mut left = Vec::new();
        for KeptLink { link, agent, .. } in links {
            let descriptors = Descriptors { link: link.as_raw_fd(), gate: gate.as_raw_fd(), key: key.as_raw_fd() };
            match Releaser::start(descriptors) {
                Ok(releaser) => {
                    self.0.push((releaser, agent));
                    left.push((link, None));
                }
                Err(_) => left.push((link, Some(agent))),
            }
        }
        drop(left);
        drop(key);
    }

    /// Returns descriptors that become readable when a releaser ends.
    pub fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(releaser, _)| releaser.process.as_fd())
    }

    pub fn drop_ended(&mut self) {
        self.0.retain(|(releaser, _)| !releaser.has_ended(WaitIdOptions::NOHANG));
    }
}

impl Drop for Releaser {
    fn drop(&mut self) {
        // The process uses the descriptors and the stack until then.
        self.has_ended(WaitIdOptions::empty());
    }
}

impl Releaser {
    fn start(descriptors: Descriptors) -> io::Result<Self> {
        let descriptors = Box::new(descriptors);
        let argument = (&raw const *descriptors).cast_mut().cast();
        let mut stack = Box::new_uninit_slice(STACK);
        let end = stack.as_mut_ptr_range().end.cast();
        // A copy of the memory would cost ten times more.
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut process: c_int = -1;
        // SAFETY: the stack and the descriptors live until the process has ended, because `Releaser` owns both and
        // waits for that when dropped. `run_releaser` uses nothing of this thread: see there.
        let pid = unsafe { libc::clone(run_releaser, end, flags, argument, &raw mut process) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just opened it for this caller.
        let process = unsafe { OwnedFd::from_raw_fd(process) };
        Ok(Self { process, _descriptors: descriptors, _stack: stack })
    }

    fn has_ended(&self, options: WaitIdOptions) -> bool {
        let process = WaitId::PidFd(self.process.as_fd());
        let ended = rustix::io::retry_on_intr(|| waitid(process.clone(), options | WaitIdOptions::EXITED));
        // If it is no longer a child, it has ended, too.
        !matches!(ended, Ok(None))
    }
}

/// What a releaser runs. It shares the memory and the thread-local variables of the thread that started it, which runs
/// on. So it changes none of them, and makes system calls that do not fail.
extern "C" fn run_releaser(argument: *mut c_void) -> c_int {
    // SAFETY: the descriptors live until this process has ended.
    let &Descriptors { link, gate, key } = unsafe { &*argument.cast::<Descriptors>() };
    let mut kept = [link, gate, key];
    kept.sort_unstable();
    let mut next = 0;
    for kept in kept {
        if next < kept {
            close(next, kept - 1);
        }
        next = kept + 1;
    }
    close(next, RawFd::MAX);
    close(key, key);
    let mut byte = 0_u8;
    // SAFETY: the buffer is one byte, and nothing is ever written to the gate. The last call ends this process.
    unsafe {
        libc::syscall(libc::SYS_read, gate, &raw mut byte, size_of_val(&byte));
        libc::_exit(0)
    }
}

fn close(first: RawFd, last: RawFd) {
    // SAFETY: this process no longer uses them, and has its own table.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
