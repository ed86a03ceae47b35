//! Keeps a program on the stack of the thread that it runs in.
//!
//! Since Linux 6.13, a program of this type that uses 64 bytes of stack or more gets one stack for each CPU instead
//! (`bpf_enable_priv_stack` and `check_max_stack_depth`, kernel/bpf/verifier.c). At a uprobe a program can be
//! preempted, and then be hit in another server on the same CPU: each writes into the other's stack. On Linux 7.2 this
//! made the kernel read from a wrong address and end a server. A program that can make a tail call gets no such stack.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::map;
use aya_ebpf::maps::ProgramArray;

/// The programs that could be called: none.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Does nothing. A program that uses much stack must be able to get here.
#[inline(always)]
pub fn stay(ctx: &impl EbpfContext) {
    // SAFETY: the entry is empty, so the call fails and control returns.
    unsafe { NO_PROGRAMS.tail_call(ctx, 0) };
}
