//! Those of x86-64.

use core::ptr::{addr_of, read_volatile};

use aya_ebpf::bindings::pt_regs;
use aya_ebpf::programs::PerfEventContext;
use evictscope_abi::{SAVED_REGISTERS, WORDS};

/// How many bytes of the stack a return takes: the return address.
pub const RETURNED: u64 = 8;
/// Whether branches decide by registers, not only by the flags.
pub const CAN_DECIDE: bool = false;
/// The bits of `cs` that are set while a thread's own code runs.
const USER_MODE: u64 = 3;

/// Copies the general registers, by their numbers.
///
/// # Safety
///
/// `from` must be the beginning of the context.
#[inline(always)]
pub unsafe fn copy(to: &mut [u64; WORDS], from: *const pt_regs) {
    // SAFETY: the caller guarantees it.
    let from = unsafe { &*from };
    macro_rules! copy {
        ($($index:literal $register:ident)*) => { $( to[$index] = from.$register; )* };
    }
    copy!(0 rax 1 rcx 2 rdx 3 rbx 4 rsp 5 rbp 6 rsi 7 rdi 8 r8 9 r9 10 r10 11 r11 12 r12 13 r13 14 r14 15 r15);
}

/// Returns the flags.
///
/// # Safety
///
/// As for [`copy`].
#[inline(always)]
pub unsafe fn flags(of: *const pt_regs) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { (*of).eflags }
}

/// Returns the stack pointer.
///
/// # Safety
///
/// As for [`copy`].
#[inline(always)]
pub unsafe fn stack_pointer(of: *const pt_regs) -> u64 {
    // SAFETY: the caller guarantees it.
    unsafe { (*of).rsp }
}

/// Copies the registers of a thread whose own code an event interrupted, in the kernel's order. Returns whether it did:
/// the event may have interrupted the kernel.
#[inline(always)]
pub fn copy_interrupted(to: &mut [u64; SAVED_REGISTERS], ctx: &PerfEventContext) -> bool {
    macro_rules! copy {
        ($from:ident $($index:literal $register:ident)*) => {$(
            // SAFETY: a field of the context.
            to[$index] = unsafe { read_volatile(addr_of!((*$from).$register)) };
        )*};
    }
    // SAFETY: the context is the one that the program was called with, and its registers come first.
    let (from, segment) = unsafe {
        let from = addr_of!((*ctx.ctx).regs);
        (from, read_volatile(addr_of!((*from).cs)))
    };
    if segment & USER_MODE != USER_MODE {
        return false;
    }
    copy!(from 0 r15 1 r14 2 r13 3 r12 4 rbp 5 rbx 6 r11 7 r10 8 r9 9 r8 10 rax 11 rcx 12 rdx 13 rsi 14 rdi
        15 orig_rax 16 rip 17 cs 18 eflags 19 rsp 20 ss);
    true
}
