//! What the objects ask of the kernel alike. Each has its own copy.
#![allow(dead_code, reason = "an object uses only some of it")]

use core::ffi::c_void;
use core::mem::MaybeUninit;

use aya_ebpf::bindings::seq_file;
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_seq_write};

/// Returns the monotonic time, nanoseconds.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: the helper takes nothing and always succeeds.
    unsafe { bpf_ktime_get_ns() }
}

/// Reads what is at an address of the kernel, or 0 if there is no such memory: the kernel then writes zeros.
#[inline(always)]
pub fn or_zero<T: Copy>(at: *const c_void) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: as many bytes as the value has, which the helper writes in any case. Integers and pointers only.
    unsafe {
        bpf_probe_read_kernel(value.as_mut_ptr().cast(), size_of::<T>() as u32, at);
        value.assume_init()
    }
}

/// Writes a record to an iterator's reader.
#[inline(always)]
pub fn write<T: Copy>(seq: *mut seq_file, record: &T) {
    // SAFETY: as many bytes as the record has, none of them padding.
    unsafe { bpf_seq_write(seq, (&raw const *record).cast(), size_of::<T>() as u32) };
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    // The verifier refuses a program in which this can be reached.
    loop {}
}
