//! Processes that release links by ending: the *hands*.
//!
//! A process that is killed (SIGKILL) while it closes the last descriptor of a link leaves breakpoints, because the
//! kernel's look-up of the page is interrupted. A process that is already ending can no longer be killed. So a link is
//! given to a new process, the keeper closes its own descriptor, and the new process ends. The kernel waits for each
//! link, so several hands release links side by side.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use super::links::Kept;

/// The most hands at a time: more are no faster, and a control group may not allow many.
pub const MOST: usize = 64;
/// The stack of a hand, bytes: it makes a few system calls.
const STACK: usize = 32 << 10;

/// The hands at work, each with the socket whose end tells the agent that its link is released. Dropping them
/// waits until they have ended.
#[derive(Default)]
pub struct Hands(Vec<(Hand, OwnedFd)>);

struct Hand {
    process: OwnedFd,
    _grip: Box<Grip>,
    _stack: Box<[MaybeUninit<u8>]>,
}

/// The descriptors that a hand keeps. The gate opens once nobody has the key: the hands that were started together
/// close everything but their grip, and then the key, as the keeper does. So each of them has the last descriptor of
/// its link.
struct Grip {
    link: RawFd,
    gate: RawFd,
    key: RawFd,
}

impl Hands {
    /// Begins to release links.
    pub fn release(&mut self, links: Vec<Kept>) {
        let gate = if links.is_empty() { None } else { pipe_with(PipeFlags::CLOEXEC).ok() };
        // A link without a hand is released when this returns.
        let Some((gate, key)) = gate else { return };
        let mut left = Vec::new();
        for Kept { link, agent, .. } in links {
            let grip = Grip { link: link.as_raw_fd(), gate: gate.as_raw_fd(), key: key.as_raw_fd() };
            let agent = match Hand::start(grip) {
                Ok(hand) => {
                    self.0.push((hand, agent));
                    None
                }
                Err(_) => Some(agent),
            };
            left.push((link, agent));
        }
        drop(left);
        drop(key);
    }

    /// Returns descriptors that become readable when a hand ends.
    pub fn processes(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(hand, _)| hand.process.as_fd())
    }

    /// Drops the hands that have ended.
    pub fn drop_ended(&mut self) {
        let is_at_work = |hand: &Hand| !hand.has_ended(WaitIdOptions::NOHANG);
        self.0.retain(|(hand, _)| is_at_work(hand));
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        // The process uses the grip and the stack until then.
        self.has_ended(WaitIdOptions::empty());
    }
}

impl Hand {
    fn start(grip: Grip) -> io::Result<Self> {
        let grip = Box::new(grip);
        let mut stack = Box::new_uninit_slice(STACK);
        let end = stack.as_mut_ptr_range().end;
        let told = (&raw const *grip).cast_mut().cast();
        // A copy of the memory would cost ten times more.
        let flags = libc::CLONE_VM | libc::CLONE_PIDFD | libc::SIGCHLD;
        let mut process: c_int = -1;
        // SAFETY: the stack and the grip live until the process has ended, because `Hand` owns both and waits for that
        // when dropped. `hold` uses nothing of this thread: see there.
        let pid = unsafe { libc::clone(hold, end.cast(), flags, told, &raw mut process) };
        if pid < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            // SAFETY: the kernel has just opened it for this caller.
            process: unsafe { OwnedFd::from_raw_fd(process) },
            _grip: grip,
            _stack: stack,
        })
    }

    fn has_ended(&self, options: WaitIdOptions) -> bool {
        let process = WaitId::PidFd(self.process.as_fd());
        let ended = rustix::io::retry_on_intr(|| waitid(process.clone(), options | WaitIdOptions::EXITED));
        // If it is no longer a child, it has ended, too.
        !matches!(ended, Ok(None))
    }
}

/// Does the work of a hand. It shares the memory and the thread-local variables of the thread that started it, which
/// runs on. So it changes none of them, and makes system calls that do not fail.
extern "C" fn hold(told: *mut c_void) -> c_int {
    // SAFETY: the grip lives until this process has ended.
    let &Grip { link, gate, key } = unsafe { &*told.cast::<Grip>() };
    let mut own = [link, gate, key];
    own.sort_unstable();
    let mut next = 0;
    for own in own {
        if next < own {
            close(next, own - 1);
        }
        next = own + 1;
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

/// Closes the descriptors from `first` to `last`.
fn close(first: RawFd, last: RawFd) {
    // SAFETY: this process no longer uses them, and has its own table.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
