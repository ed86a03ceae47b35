//! The code of a running program, compared with its file: where they differ, there is a breakpoint.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use anyhow::{Context as _, Result};
use procfs::process::{MMPermissions, Process};

/// The kernel's breakpoint: `brk`, with the operand of its probes, or `int3`.
pub const BREAKPOINT: &[u8] = if cfg!(target_arch = "aarch64") { &[0xa0, 0, 0x20, 0xd4] } else { &[0xcc] };
const LENGTH: usize = BREAKPOINT.len();

/// The code of a process, for as long as it executes the same program.
pub struct Code {
    memory: File,
    /// Where in memory it begins, and where in the file.
    address: u64,
    offset: u64,
    original: Vec<u8>,
}

impl Code {
    pub fn of(pid: u32) -> Result<Self> {
        let exe = File::open(format!("/proc/{pid}/exe"))?;
        let memory = File::open(format!("/proc/{pid}/mem"))?;
        let inode = exe.metadata()?.ino();
        let code = Process::new(pid.try_into()?)?
            .maps()?
            .into_iter()
            .find(|map| map.inode == inode && map.perms.contains(MMPermissions::EXECUTE))
            .context("no code is mapped")?;
        let mut original = vec![0; usize::try_from(code.address.1 - code.address.0)?];
        // The rest of the last page is not in the file.
        let in_file = exe.read_at(&mut original, code.offset)?;
        original.truncate(in_file);
        Ok(Self { memory, address: code.address.0, offset: code.offset, original })
    }

    /// Returns the offsets in the file of the instructions, or of the bytes that can begin one, that differ in memory.
    pub fn changed(&self) -> Result<BTreeSet<u64>> {
        let mut running = vec![0; self.original.len()];
        self.memory.read_exact_at(&mut running, self.address)?;
        // The usual case, compared at once.
        if running == self.original {
            return Ok(BTreeSet::new());
        }
        let [running, original] = [&running, &self.original].map(|code| code.chunks(LENGTH));
        let pairs = (self.offset..).step_by(LENGTH).zip(running.zip(original));
        Ok(pairs.filter(|(_, (running, original))| running != original).map(|(offset, _)| offset).collect())
    }

    pub fn address_of(&self, offset: u64) -> u64 {
        self.address.wrapping_add(offset).wrapping_sub(self.offset)
    }

    /// Returns how many of those at these offsets differ in memory. This takes some microseconds.
    pub fn changed_of(&self, offsets: &BTreeSet<u64>) -> Result<usize> {
        let mut changed = 0;
        for offset in offsets {
            let at = offset.checked_sub(self.offset);
            let index = at.and_then(|at| usize::try_from(at).ok());
            let original = index.and_then(|index| self.original.get(index..)?.first_chunk::<LENGTH>());
            let original = original.context("not in this code")?;
            let mut running = [0; LENGTH];
            self.memory.read_exact_at(&mut running, self.address_of(*offset))?;
            changed += usize::from(*original != running);
        }
        Ok(changed)
    }
}

#[test]
fn the_code_of_this_program_is_that_of_its_file() -> Result<()> {
    let mut code = Code::of(std::process::id())?;
    assert!(code.changed()?.is_empty());
    let other = code.offset + 8;
    code.original[8] ^= 1;
    assert_eq!(code.changed()?, BTreeSet::from([other]));
    assert_eq!(code.changed_of(&BTreeSet::from([other - 4, other]))?, 1);
    assert!(code.changed_of(&BTreeSet::from([u64::MAX])).is_err());
    Ok(())
}
