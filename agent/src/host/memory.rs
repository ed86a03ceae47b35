//! Finds where a process's executable is loaded, and reads words of its memory.

use std::io::{self, IoSliceMut};

use anyhow::{Context as _, anyhow};
use evictscope_plan::{FileAddress, ProcessAddress};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use procfs::process::Process;

/// Key of the program's entry point in the auxiliary vector, from the kernel's `auxvec.h`.
const AT_ENTRY: u64 = 9;
/// The kernel loads at multiples of this.
const PAGE: u64 = 4096;
const WORD: usize = size_of::<u64>();

/// Returns what to add to a virtual address of the ELF file to get the address in the process: 0 for
/// an executable that is not position-independent. `entry` is the file's `e_entry`.
///
/// # Errors
///
/// Fails where the process has ended, may not be looked into, or runs another program by now.
pub fn load_bias(pid: u32, entry: FileAddress) -> anyhow::Result<u64> {
    let vector = Process::new(pid.cast_signed()).and_then(|process| process.auxv());
    let vector = vector.map_err(|error| {
        anyhow!("cannot read /proc/{pid}/auxv ({error}): run as root, if the process still runs")
    })?;
    let actual = vector.get(&AT_ENTRY).copied().map(ProcessAddress::new);
    let actual = actual
        .with_context(|| format!("/proc/{pid}/auxv has no entry point: has the process ended?"))?;
    let bias = actual.load_bias(entry).filter(|bias| bias % PAGE == 0);
    bias.with_context(|| {
        format!(
            "process {pid} begins at {actual:#x}, which does not fit the entry point {entry:#x} of \
             its executable: it has started another program in the meantime; try again"
        )
    })
}

/// Reads the 8-byte words at these addresses of a process, all in one system call; 1,024 at most
/// (the kernel's limit). They are not read at the same moment: a server that runs may change one
/// between two of them.
///
/// # Errors
///
/// Fails with what the kernel says (`EPERM`: run as root; `ESRCH`: the process has ended; `EFAULT`: nothing
/// is mapped at the first address), and `UnexpectedEof` where nothing is mapped at a later one.
pub fn read_words(pid: u32, addresses: &[ProcessAddress]) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; addresses.len() * WORD];
    let remote = addresses
        .iter()
        .map(|address| {
            let base = usize::try_from(address.get()).map_err(io::Error::other)?;
            Ok(RemoteIoVec { base, len: WORD })
        })
        .collect::<io::Result<Vec<_>>>()?;
    let read = process_vm_readv(
        Pid::from_raw(pid.cast_signed()),
        &mut [IoSliceMut::new(&mut bytes)],
        &remote,
    )?;
    if let Some(address) = addresses.get(read / WORD) {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("process {pid} has nothing mapped at {address:#x}"),
        ));
    }
    let (words, _) = bytes.as_chunks::<WORD>();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use object::{File, Object as _};

    use super::{FileAddress, ProcessAddress, load_bias, read_words};

    static HERE: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn words_of_a_process_are_read_in_order() -> std::io::Result<()> {
        let local = Box::new(42_u64);
        let addresses = [&raw const HERE, &raw const *local];
        let addresses = addresses.map(|word| ProcessAddress::new(word as u64));
        assert_eq!(read_words(std::process::id(), &addresses)?, [HERE, 42]);
        assert!(read_words(std::process::id(), &[])?.is_empty());
        Ok(())
    }

    #[test]
    fn an_address_that_is_not_mapped_is_an_error() {
        let here = ProcessAddress::new(&raw const HERE as u64);
        let nowhere = ProcessAddress::new(8);
        let first = read_words(std::process::id(), &[nowhere, here]);
        assert!(first.is_err(), "{first:?}");
        let later = read_words(std::process::id(), &[here, nowhere]);
        assert_eq!(
            later.map_err(|error| error.kind()),
            Err(ErrorKind::UnexpectedEof)
        );
    }

    #[test]
    fn the_load_bias_leads_from_the_file_to_the_process() -> anyhow::Result<()> {
        let bytes = std::fs::read("/proc/self/exe")?;
        let pid = std::process::id();
        let entry = FileAddress::new(File::parse(&*bytes)?.entry());
        let bias = load_bias(pid, entry)?;
        let maps = procfs::process::Process::myself()?.maps()?;
        let begins = entry.at(bias).get();
        let mapped = maps.iter().any(|map| {
            (map.address.0..map.address.1).contains(&begins)
                && map.perms.contains(procfs::process::MMPermissions::EXECUTE)
        });
        assert!(mapped, "{begins:#x} is not in an executable mapping");

        let other = load_bias(pid, entry.wrapping_add(1)).map_err(|error| error.to_string());
        assert!(other.is_err_and(|error| error.contains("has started another program")));
        Ok(())
    }
}
