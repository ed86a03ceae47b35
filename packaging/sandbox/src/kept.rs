//! Whether a running process is under the restrictions.

use anyhow::{bail, ensure};
use procfs::process::Process;

use crate::Unit;

/// The filtering mode of `Seccomp` in `/proc/PID/status`.
const FILTERED: u32 = 2;

/// Fails unless every thread of a process is of this user and group alone, holds just what the unit
/// leaves it, hands on none of that, and is under a filter of system calls.
///
/// # Errors
///
/// That it is not so, or that the process has ended.
pub fn must_be_kept(pid: u32, unit: &Unit, user: u32, group: u32) -> anyhow::Result<()> {
    let names = unit.one("CapabilityBoundingSet")?.split_whitespace();
    let allowed = names.map(capability_bit).sum::<anyhow::Result<u64>>()?;
    for task in Process::new(pid.try_into()?)?.tasks()? {
        let status = task?.status()?;
        let name = &status.name;
        ensure!(
            status.capprm == allowed && status.capeff == allowed,
            "{name} holds the capabilities {:x}",
            status.capprm
        );
        ensure!(
            status.capinh == 0 && status.capamb == Some(0) && status.capbnd == Some(allowed),
            "{name} can hand on capabilities, or get more"
        );
        ensure!(
            status.nonewprivs == Some(1) && status.seccomp == Some(FILTERED),
            "{name} may get privileges, or call what it likes"
        );
        ensure!(
            status.euid == user && status.egid == group && status.groups.is_empty(),
            "{name} runs as {}:{} with the groups {:?}",
            status.euid,
            status.egid,
            status.groups
        );
    }
    Ok(())
}

/// From the kernel's `capability.h`.
fn capability_bit(name: &str) -> anyhow::Result<u64> {
    Ok(1 << match name {
        "CAP_DAC_READ_SEARCH" => 2,
        "CAP_SYS_PTRACE" => 19,
        "CAP_SYS_ADMIN" => 21,
        _ => bail!("which number has {name}?"),
    })
}
