//! The agent's own functions on which probes are tried and measured.

use evictscope_host::offsets_of_code;
use evictscope_model::{FileOffset, ProcessAddress};

use super::error::ProbeError;

std::arch::global_asm!(
    ".pushsection .text.evictscope_calibration, \"ax\", @progbits",
    ".globl evictscope_calibration_emulated",
    "evictscope_calibration_emulated:",
    "push rbx",
    "pop rbx",
    "ret",
    ".globl evictscope_calibration_emulated_too",
    "evictscope_calibration_emulated_too:",
    "push rbx",
    "pop rbx",
    "ret",
    ".globl evictscope_calibration_stepped",
    "evictscope_calibration_stepped:",
    "mov eax, edi",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn evictscope_calibration_emulated();
    fn evictscope_calibration_emulated_too();
    fn evictscope_calibration_stepped();
}

/// A function that takes nothing and returns nothing.
pub(super) type Function = unsafe extern "C" fn();

/// Two functions that begin with an instruction that the kernel emulates, and one whose first instruction it
/// single-steps.
pub(super) const FUNCTIONS: [Function; 3] =
    [evictscope_calibration_emulated, evictscope_calibration_emulated_too, evictscope_calibration_stepped];

/// Lets one test at a time probe this process: otherwise each would count the calls of the others.
#[cfg(test)]
pub(super) fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let alone = ALONE.lock();
    alone.unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns where [`FUNCTIONS`] are in the agent's own executable.
pub(super) fn own_sites() -> Result<[FileOffset; 3], ProbeError> {
    own_offsets(FUNCTIONS.map(|function| function as usize as u64))
}

/// Returns where the code at these addresses is in the agent's own executable.
pub(super) fn own_offsets<const N: usize>(addresses: [u64; N]) -> Result<[FileOffset; N], ProbeError> {
    let addresses = addresses.map(ProcessAddress::new);
    offsets_of_code(std::process::id(), addresses).map_err(ProbeError::OwnExecutable)
}
