//! Calls of the C library that are unsafe and have no safe wrapper: signals, the allocator's heaps, and exit codes of
//! processes that are no children of this one.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Makes signals mean what this program takes them to mean, whoever started it. Call it before any thread is started.
///
/// If SIGCHLD were ignored, nobody would hear how a planner ended, and if SIGXCPU were, its limit would not be told
/// from a kill. A signal that is held back, as SIGTERM may be, would never come. SIGXFSZ would end the agent because of
/// one file: a write beyond the limit fails anyway.
pub fn take_back_signals() {
    for (signal, action) in
        [(libc::SIGCHLD, libc::SIG_DFL), (libc::SIGXCPU, libc::SIG_DFL), (libc::SIGXFSZ, libc::SIG_IGN)]
    {
        // SAFETY: no handler is set, so no code of ours runs in a signal. That these signals exist is all that it
        // takes.
        unsafe { libc::signal(signal, action) };
    }
    let mut none = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the set, which is read only then. The mask is this thread's, and there is no other
    // yet.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Returns the exit code of a process that has ended and was reaped, as `wait(2)` has it. Returns `None` if it was not
/// reaped yet, or the kernel is older than Linux 6.15.
pub fn exit_code(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let asked = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: it consists of integers, for which 0 is a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = asked;
    // SAFETY: the ioctl's number has the size of this struct, and the kernel writes no more than that.
    let status = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (status == 0 && info.mask & asked != 0).then_some(info.exit_code)
}

/// The number of heaps that all threads share.
#[cfg(target_env = "gnu")]
const HEAPS: i32 = 2;

/// Makes all threads that start later share a few heaps: with one heap each, as in glibc by default, 130 MB
/// were kept for 19 MB used.
pub fn share_heaps() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAPS)
    };
}

/// Gives unused memory back to the kernel: reading the kernel's description of its types takes 60 MB, and 20 MB would
/// be kept.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only touches memory that was freed.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Blocks all signals that can be blocked: those that end a process would interrupt the kernel's work for it.
pub fn block_signals() {
    // SAFETY: the set is filled before it is read, and belongs to this function. Signals are blocked in this thread,
    // the only one.
    unsafe {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
    }
}
