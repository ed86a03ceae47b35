//! Those of aarch64.

use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::{pt_regs, user_pt_regs};
use aya_ebpf::programs::PerfEventContext;
use evictscope_abi::{SAVED_REGISTERS, WORDS};

/// How many bytes of the stack a return takes: none, the return address is in a register.
pub const RETURNED: u64 = 0;
/// Whether branches decide by registers, not only by the flags.
pub const CAN_DECIDE: bool = true;
/// The bits of pstate that are clear while a thread's own code runs (`PSR_MODE_MASK`).
const MODE: u64 = 15;

/// Reads the general registers one by one.
macro_rules! copy {
    ($to:ident $from:ident) => {
        copy!($to $from 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30)
    };
    ($to:ident $from:ident $($index:literal)+) => {
        // SAFETY: fields of the context.
        unsafe {
            $( $to[$index] = read_volatile(addr_of!((*$from).regs[$index])); )+
            $to[31] = read_volatile(addr_of!((*$from).sp));
        }
    };
}

/// Copies the general registers and the stack pointer, by their numbers.
///
/// # Safety
///
/// `from` must be the beginning of the context.
#[inline(always)]
pub unsafe fn copy(to: &mut [u64; WORDS], from: *const pt_regs) {
    let from = from.cast::<user_pt_regs>();
    copy!(to from);
}

/// Returns the flags.
///
/// # Safety
///
/// As for [`copy`].
#[inline(always)]
pub unsafe fn flags(of: *const pt_regs) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { (*of.cast::<user_pt_regs>()).pstate }
}

/// Returns the stack pointer.
///
/// # Safety
///
/// As for [`copy`].
#[inline(always)]
pub unsafe fn stack_pointer(of: *const pt_regs) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { (*of.cast::<user_pt_regs>()).sp }
}

/// Copies the registers of a thread whose own code an event interrupted, in the kernel's order. Returns whether it did:
/// the event may have interrupted the kernel.
#[inline(always)]
pub fn copy_interrupted(to: &mut [u64; SAVED_REGISTERS], ctx: &PerfEventContext) -> bool {
    // SAFETY: the context is the one that the program was called with, and its registers come first.
    let (from, state) = unsafe {
        let from = addr_of!((*ctx.ctx).regs);
        (from, read_volatile(addr_of!((*from).pstate)))
    };
    if state & MODE != 0 {
        return false;
    }
    copy!(to from);
    // SAFETY: a field of the context.
    to[32] = unsafe { read_volatile(addr_of!((*from).pc)) };
    to[33] = state;
    true
}
