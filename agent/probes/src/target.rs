//! What probes are attached to: a process, or this one, which has functions of its own for trying them and measuring
//! what they cost.

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd};

use evictscope_host::offsets_of_code;
use evictscope_model::{FileOffset, ProcessAddress};

use super::error::ProbeError;

/// A running process to attach to.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub pid: u32,
    pub exe: BorrowedFd<'a>,
}

pub struct OwnExecutable(File);

impl OwnExecutable {
    pub fn open() -> Result<Self, ProbeError> {
        File::open("/proc/self/exe").map(Self).map_err(ProbeError::OwnExecutable)
    }

    pub fn target(&self) -> Target<'_> {
        Target { pid: std::process::id(), exe: self.0.as_fd() }
    }
}

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(include_str!("target.aarch64.s"));
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(include_str!("target.x86_64.s"));

unsafe extern "C" {
    fn evictscope_calibration_emulated();
    fn evictscope_calibration_emulated_too();
    fn evictscope_calibration_stepped();
}

pub type TargetFunction = unsafe extern "C" fn();

/// Two functions that begin with an instruction that the kernel emulates, and one whose first instruction it
/// single-steps.
pub const FUNCTIONS: [TargetFunction; 3] =
    [evictscope_calibration_emulated, evictscope_calibration_emulated_too, evictscope_calibration_stepped];

/// Returns where [`FUNCTIONS`] are in the agent's own executable.
pub fn own_sites() -> Result<[FileOffset; 3], ProbeError> {
    own_offsets(FUNCTIONS.map(|function| function as usize as u64))
}

/// Returns where the code at these addresses is in the agent's own executable.
pub fn own_offsets<const N: usize>(addresses: [u64; N]) -> Result<[FileOffset; N], ProbeError> {
    offsets_of_code(std::process::id(), addresses.map(ProcessAddress::new)).map_err(ProbeError::OwnExecutable)
}

/// Lets one test at a time probe this process: otherwise each would count the calls of the others.
#[cfg(test)]
pub fn alone() -> parking_lot::MutexGuard<'static, ()> {
    static ALONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    ALONE.lock()
}
