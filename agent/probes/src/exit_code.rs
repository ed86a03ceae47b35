//! Asks the kernel for the exit code of a process, which is no child of this one: an ioctl, so it is here.

use std::os::fd::{AsRawFd as _, BorrowedFd};

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
