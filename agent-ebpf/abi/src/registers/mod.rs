//! Registers, as the programs see them: how many there are, how the kernel orders them, and what their flags say.
//!
//! Programs and agent are for the same processor. A program's own target is BPF, so a flag of its build says which.

pub mod aarch64;
pub mod x86_64;

#[cfg(any(target_arch = "aarch64", bpf_target_arch = "aarch64"))]
pub use self::aarch64::*;
#[cfg(not(any(target_arch = "aarch64", bpf_target_arch = "aarch64")))]
pub use self::x86_64::*;

#[inline(always)]
pub(crate) const fn is_set(bits: u64, bit: u32) -> bool {
    (bits >> bit) & 1 != 0
}
