//! The order in which other processors see what a program stores.
//!
//! The order of x86-64 is enough: others see all stores in the order in which they were made, so only the compiler must
//! be held back. On aarch64 an exchange that acquires and releases keeps the order of what is before it and what is
//! behind it, but its own store may be seen late ("barrier-ordered-before" in the Arm Architecture Reference Manual).
//! The kernel makes such exchanges, and a barrier behind those of processors without them (`emit_ll_sc_atomic`,
//! arch/arm64/net/bpf_jit_comp.c).

use core::ptr::write_volatile;
use core::sync::atomic::{Ordering, compiler_fence};

/// Stores a word that others see before all that is stored later.
///
/// # Safety
///
/// `word` must be valid.
#[inline(always)]
pub unsafe fn store_first(word: *mut u64, value: u64) {
    // SAFETY: the caller guarantees validity.
    unsafe {
        write_volatile(word, value);
        #[cfg(bpf_target_arch = "aarch64")]
        exchange(word, value);
    }
    compiler_fence(Ordering::Release);
}

/// Stores a word that others see after all that was stored before.
///
/// # Safety
///
/// `word` must be valid.
#[inline(always)]
pub unsafe fn store_last(word: *mut u64, value: u64) {
    compiler_fence(Ordering::Release);
    // SAFETY: the caller guarantees validity.
    unsafe {
        #[cfg(bpf_target_arch = "aarch64")]
        exchange(word, value);
        #[cfg(not(bpf_target_arch = "aarch64"))]
        write_volatile(word, value);
    }
}

/// Exchanges a word for `value`, in both orders. The target has the instruction, but `core` has no name for it.
///
/// # Safety
///
/// `word` must be valid.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
unsafe fn exchange(word: *mut u64, value: u64) {
    // SAFETY: the caller guarantees validity.
    unsafe { core::arch::asm!("{0} = xchg_64({1} + 0, {0})", inout(reg) value => _, in(reg) word) };
}
