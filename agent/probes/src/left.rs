//! Breakpoints that are in a server's code before any of ours.
//!
//! Those that an agent has left which was killed together with its keeper go when a probe is placed there and taken off.

use evictscope_host::{Executable, breakpoints, is_traced};

use super::programs::Programs;
use super::target::Target;

/// Takes out the breakpoints that are in the code of a process which runs this executable, as far as the kernel lets it.
/// Returns how many stay: another tool's.
pub fn take_out(programs: &Programs, target: Target<'_>, executable: &Executable) -> usize {
    let pid = target.pid;
    let find = || breakpoints(pid, executable).unwrap_or_default();
    let found = find();
    // A debugger's would be taken out too, though it takes them for its own.
    if found.is_empty() || is_traced(pid) {
        return found.len();
    }
    programs.take_out(target, &found);
    let left = find().len();
    let taken = found.len().saturating_sub(left);
    if taken > 0 {
        tracing::info!(
            pid,
            taken,
            "took out breakpoints that were left in its code"
        );
    }
    left
}
