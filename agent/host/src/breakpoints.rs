//! Finds breakpoints in the code of a process.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use evictscope_plan::FileOffset;
use procfs::process::{MMPermissions, MMapPath, Process};

use super::executable::Executable;

/// The instruction `int3`.
const BREAKPOINT: u8 = 0xcc;
/// What is compared at once, bytes.
const CHUNK: usize = 64 << 10;

/// Returns where in the file a process has a breakpoint in place of the file's code: of whom, cannot be told.
///
/// # Errors
///
/// Fails where the process has ended or may not be looked into, or the file cannot be read.
pub fn breakpoints(pid: u32, executable: &Executable) -> io::Result<Vec<FileOffset>> {
    let file = executable.file();
    let inode = file.metadata()?.ino();
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let process = Process::new(pid.cast_signed()).map_err(io::Error::other)?;
    // Files of several file systems may have this number.
    let path = MMapPath::Path(process.exe().map_err(io::Error::other)?);
    let mut found = Vec::new();
    for map in process.maps().map_err(io::Error::other)? {
        let is_own = map.inode == inode && map.pathname == path;
        if !is_own || !map.perms.contains(MMPermissions::EXECUTE) {
            continue;
        }
        let (begin, end) = map.address;
        for address in (begin..end).step_by(CHUNK) {
            let len = usize::try_from(end - address).map_or(CHUNK, |rest| rest.min(CHUNK));
            let (mut original, mut running) = (vec![0; len], vec![0; len]);
            let offset = map.offset + (address - begin);
            // The rest of the last page is not in the file.
            let in_file = file.read_at(&mut original, offset)?;
            memory.read_exact_at(&mut running, address)?;
            let pairs = (offset..).zip(running.iter().zip(&original[..in_file]));
            let changed = pairs.filter(|(_, (running, original))| {
                **running == BREAKPOINT && **original != BREAKPOINT
            });
            found.extend(changed.map(|(offset, _)| FileOffset::new(offset)));
        }
    }
    Ok(found)
}

/// Tells whether a debugger traces a process, to which its breakpoints may belong.
pub fn is_traced(pid: u32) -> bool {
    let status = Process::new(pid.cast_signed()).and_then(|process| process.status());
    status.is_ok_and(|status| status.tracerpid != 0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Executable, breakpoints, is_traced};

    #[test]
    fn code_that_nobody_has_changed_has_none() -> anyhow::Result<()> {
        let mut process = std::process::Command::new("sleep").arg("60").spawn()?;
        let pid = process.id();
        let executable = Executable::open(Path::new(&format!("/proc/{pid}/exe")))?;
        let found = breakpoints(pid, &executable);
        process.kill()?;
        process.wait()?;
        assert!(found?.is_empty());
        assert!(!is_traced(std::process::id()));
        assert!(breakpoints(pid, &executable).is_err());
        Ok(())
    }
}
