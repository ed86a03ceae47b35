//! Keeps a program on the stack of the thread that it runs in.
//!
//! Since Linux 6.13, a program of this type that uses 64 bytes of stack or more gets one stack for each CPU instead
//! (`bpf_enable_priv_stack` and `check_max_stack_depth`, kernel/bpf/verifier.c). At a uprobe a program can be preempted, and
//! then hit in another server on the same CPU: each writes into the stack of the other. On Linux 7.2 the kernel read from a
//! wrong address so, and ended a server. A program that can make a tail call gets no such stack.

use aya_ebpf::EbpfContext;
use aya_ebpf::macros::map;
use aya_ebpf::maps::ProgramArray;

/// What could be called: nothing.
#[map]
static NO_PROGRAMS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Does nothing. A program that uses much stack must be able to come here.
#[inline(always)]
pub fn stay(ctx: &impl EbpfContext) {
    // SAFETY: the entry is empty, so the call fails and control comes back.
    unsafe { NO_PROGRAMS.tail_call(ctx, 0) };
}
