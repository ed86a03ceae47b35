//! Finds breakpoints in the code of a process, and compares the rest with a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use evictscope_model::{FileOffset, ProcessAddress};
use procfs::page_size;
use procfs::process::{MMPermissions, MMapPath, MemoryPageFlags, PageInfo, Process};

use crate::executable::{Executable, ExecutableError};
use crate::memory::{BREAKPOINT, Words, is_breakpoint};

/// How many bytes of code are compared at each place.
const COMPARED: usize = 16;
/// The most pages of code that are looked at: anybody can map a file again and again, and far beyond its end.
const MOST_PAGES: u64 = 1 << 16;

/// Returns whether a process has the code of this file at each of `places`: an offset in the file, and an address in
/// the process. Fails if the file cannot be read.
pub fn runs_code_of(
    memory: &Words,
    executable: &Executable,
    places: impl IntoIterator<Item = (FileOffset, ProcessAddress)>,
) -> Result<bool, ExecutableError> {
    let file = executable.contents()?;
    Ok(places.into_iter().all(|(offset, address)| {
        let [mut in_file, mut running] = [[0; COMPARED]; 2];
        let read = file.read_at(&mut in_file, offset.get()).unwrap_or(0);
        let is_mapped = read > 0 && memory.fill(address, &mut running[..read]);
        let mut pairs = running.chunks(BREAKPOINT).zip(in_file.chunks(BREAKPOINT));
        // Breakpoints may be there already.
        is_mapped && pairs.all(|(running, in_file)| running == in_file || is_breakpoint(running))
    }))
}

/// Returns where in the file a process has a breakpoint in place of the file's code. Who set it is unknown.
///
/// Reads the file, and so waits for its file system, only if the process has changed code. Fails if the process has
/// ended or may not be looked into, or the file cannot be read.
pub fn breakpoints(pid: u32, executable: &Executable) -> io::Result<Vec<FileOffset>> {
    let changed = changed_pages(pid, executable)?;
    if changed.is_empty() {
        return Ok(Vec::new());
    }
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let file = executable.contents().map_err(io::Error::other)?;
    let page = usize::try_from(page_size()).map_err(io::Error::other)?;
    let (mut original, mut running) = (vec![0; page], vec![0; page]);
    let mut found = Vec::new();
    for (address, offset) in changed {
        // The rest of the last page is not in the file.
        let in_file = file.read_at(&mut original, offset)?;
        memory.read_exact_at(&mut running, address)?;
        let pairs = running.chunks(BREAKPOINT).zip(original[..in_file].chunks(BREAKPOINT));
        let pairs = (offset..).step_by(BREAKPOINT).zip(pairs);
        let breakpoints = pairs.filter(|(_, (running, original))| is_breakpoint(running) && !is_breakpoint(original));
        found.extend(breakpoints.map(|(offset, _)| FileOffset::new(offset)));
    }
    Ok(found)
}

/// Returns the pages of code that are the process's own copies: where each is in memory, and in the file.
fn changed_pages(pid: u32, executable: &Executable) -> io::Result<Vec<(u64, u64)>> {
    let process = Process::new(pid.cast_signed()).map_err(io::Error::other)?;
    let mut pages = process.pagemap().map_err(io::Error::other)?;
    // Files on several file systems may have this number.
    let path = MMapPath::Path(process.exe().map_err(io::Error::other)?);
    let page = usize::try_from(page_size()).map_err(io::Error::other)?;
    let number = |address| usize::try_from(address / page_size()).map_err(io::Error::other);
    let (mut pages_of_process, mut left) = (Vec::new(), MOST_PAGES);
    for map in process.maps().map_err(io::Error::other)? {
        let is_executable = map.inode == executable.id().file.inode && map.pathname == path;
        if !is_executable || !map.perms.contains(MMPermissions::EXECUTE) {
            continue;
        }
        let (begin, end) = map.address;
        let in_file = executable.id().bytes.saturating_sub(map.offset);
        let count = (end - begin).min(in_file).div_ceil(page_size());
        left = left.checked_sub(count).ok_or_else(|| io::Error::other("it has mapped more code than any server"))?;
        let range = number(begin)?..number(begin + count * page_size())?;
        let infos = pages.get_range_info(range).map_err(io::Error::other)?;
        let private = (begin..).step_by(page).zip(infos).filter(|(_, info)| is_private(info));
        pages_of_process.extend(private.map(|(address, _)| (address, map.offset + (address - begin))));
    }
    Ok(pages_of_process)
}

/// Returns whether a page is the process's own copy, which it gets when code is changed.
fn is_private(page: &PageInfo) -> bool {
    match page {
        PageInfo::MemoryPage(flags) => {
            flags.contains(MemoryPageFlags::PRESENT) && !flags.contains(MemoryPageFlags::FILE)
        }
        PageInfo::SwapPage(_) => true,
    }
}

/// Returns whether a debugger traces a process: its breakpoints may be the debugger's.
pub fn is_traced(pid: u32) -> bool {
    let status = Process::new(pid.cast_signed()).and_then(|process| process.status());
    status.is_ok_and(|status| status.tracerpid != 0)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use evictscope_testkit::process::Owned;

    use super::{Executable, breakpoints, is_traced};
    use crate::process::exe_proc_path;

    #[test]
    fn code_that_nobody_has_changed_has_none() -> anyhow::Result<()> {
        let process = Owned::start(Command::new("sleep").arg("60"))?;
        let pid = process.pid();
        let executable = Executable::open(&exe_proc_path(pid))?;
        assert!(breakpoints(pid, &executable)?.is_empty());
        assert!(!is_traced(std::process::id()));
        drop(process);
        assert!(breakpoints(pid, &executable).is_err());
        Ok(())
    }
}
