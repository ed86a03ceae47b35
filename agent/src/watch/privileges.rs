//! What this process may do: after its start, less.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// What it takes to look into the processes of other users and to read their executables.
const OTHERS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
/// What it takes to attach on kernels that tell this from the rest of CAP_SYS_ADMIN.
const PROBES: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Gives up, for good, what is not needed to watch servers that start later: attaching to these
/// takes the same as attaching to the first ones, so that much has to stay. What stays.
///
/// To be called before any thread is started: each has capabilities of its own.
///
/// # Errors
///
/// What the kernel says; a process may always give up what it has.
pub fn drop_unneeded() -> io::Result<CapabilitySet> {
    let held = capabilities(None)?.permitted;
    let kept = held & needed(held);
    // No program is ever executed, and if one were, it could not gain anything.
    set_no_new_privs(true)?;
    clear_ambient_capability_set()?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(kept)
}

/// What is needed by one who holds `held`.
fn needed(held: CapabilitySet) -> CapabilitySet {
    match held.contains(CapabilitySet::SYS_ADMIN) {
        // It includes the others.
        true => CapabilitySet::SYS_ADMIN | OTHERS,
        false => PROBES | OTHERS,
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CapabilitySet, capabilities};

    use super::{OTHERS, PROBES, drop_unneeded, needed};

    #[test]
    fn what_is_kept_is_what_attaching_takes() {
        let all = CapabilitySet::all();
        assert_eq!(needed(all), CapabilitySet::SYS_ADMIN | OTHERS);
        assert_eq!(needed(all - CapabilitySet::SYS_ADMIN), PROBES | OTHERS);
    }

    #[test]
    fn the_rest_is_gone() -> anyhow::Result<()> {
        // Capabilities belong to a thread, so no other test is touched.
        let thread = std::thread::spawn(|| anyhow::Ok((drop_unneeded()?, capabilities(None)?)));
        let (kept, now) = thread.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        assert_eq!(now.permitted, kept);
        assert_eq!(now.effective, kept);
        assert!(now.inheritable.is_empty());
        assert!(!kept.contains(CapabilitySet::DAC_OVERRIDE));
        Ok(())
    }
}
