//! Adds up the allocator's counters.

use aya_ebpf::helpers::{bpf_probe_read_user, generated};
use evictscope_abi::{AllocatorCounters, COUNTER_BYTES};

use crate::evaluate::{Known, read_user};
use crate::maps::{COUNTER_WORDS, Counters};

/// What the counters came to.
pub struct Sum {
    /// The sum; not known if it was not read.
    pub known: Known,
    /// Whether that is because memory could not be read.
    pub is_fault: bool,
}

impl Sum {
    const FAULT: Self = Self { known: Known::NOT, is_fault: true };
    const SKIPPED: Self = Self { known: Known::NOT, is_fault: false };
}

/// Adds up the counters that are in use, read all at once. Skips them if there are more than `MOST`.
#[inline(always)]
pub fn sum<const MOST: u32>(of: &AllocatorCounters, copy: &mut Counters) -> Sum {
    let mut count = of.count;
    let mut sum = 0_u64;
    if of.threads != 0 {
        let Some(threads) = number_of_threads(of) else {
            return Sum::FAULT;
        };
        if threads < count as u64 {
            count = threads as u32;
        } else if threads > count as u64 && of.overflow != 0 {
            match read_user(of.overflow) {
                Some(overflow) => sum = overflow,
                None => return Sum::FAULT,
            }
        }
    }
    let stride = of.stride as u64;
    let bytes = (count.wrapping_sub(1) as u64 * stride + 1) * 8;
    if of.address == 0 || count == 0 || count > MOST || bytes > COUNTER_BYTES as u64 {
        return Sum::SKIPPED;
    }
    // SAFETY: `copy` has COUNTER_BYTES; the helper checks the address and fails if it cannot be read.
    let read = unsafe {
        generated::bpf_probe_read_user(copy.as_mut_ptr().cast(), bytes as u32, of.address as *const core::ffi::c_void)
    };
    if read != 0 {
        return Sum::FAULT;
    }
    for index in 0..MOST as u64 {
        // Hidden from the optimiser, which would make it a pointer that the verifier cannot follow.
        let word = core::hint::black_box(index * stride);
        if index >= count as u64 || word >= COUNTER_WORDS as u64 {
            break;
        }
        // Counters can be negative: the sum is modulo 2^64.
        sum = sum.wrapping_add(copy[word as usize]);
    }
    Sum { known: Known { value: sum, is_known: true }, is_fault: false }
}

#[inline(always)]
fn number_of_threads(of: &AllocatorCounters) -> Option<u64> {
    if of.threads_width == 4 {
        // SAFETY: the helper checks the address and fails if it cannot be read.
        unsafe { bpf_probe_read_user(of.threads as *const u32) }.ok().map(u64::from)
    } else {
        read_user(of.threads)
    }
}
