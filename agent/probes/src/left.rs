//! Breakpoints that are in a server's code before any of ours.
//!
//! An agent that is killed together with its keeper leaves breakpoints. Placing and taking off a probe there removes
//! them.

use evictscope_host::{Executable, breakpoints, is_traced};

use super::programs::Programs;
use super::target::Target;

/// Takes out the breakpoints in the code of a process that runs this executable, as far as the kernel allows. Returns
/// how many stay: those of other tools.
pub fn take_out(programs: &Programs, target: Target<'_>, executable: &Executable) -> usize {
    let pid = target.pid;
    let find = || breakpoints(pid, executable).unwrap_or_default();
    let found = find();
    // A debugger's would be taken out too, although the debugger still relies on them.
    if found.is_empty() || is_traced(pid) {
        return found.len();
    }
    programs.take_out(target, &found);
    let left = find().len();
    let taken = found.len().saturating_sub(left);
    if taken > 0 {
        tracing::info!(pid, taken, "took out breakpoints that were left in its code");
    }
    left
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use evictscope_host::{Executable, breakpoints};
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    #[test]
    fn code_that_is_mapped_far_beyond_its_file_is_looked_at_to_the_end_of_that() -> anyhow::Result<()> {
        let file = File::open("/proc/self/exe")?;
        let (bytes, access) = (1 << 45, ProtFlags::READ | ProtFlags::EXEC);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: it is mapped where nothing else is, and nothing there is accessed.
        let mapped = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, &file, 0)? };
        let executable = Executable::open(Path::new("/proc/self/exe"))?;
        let found = breakpoints(std::process::id(), &executable);
        // SAFETY: it was mapped above.
        unsafe { munmap(mapped, bytes)? };
        // Other tests may have probes in this process.
        assert!(found.is_ok(), "{found:?}");
        Ok(())
    }
}
