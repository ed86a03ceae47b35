//! Gives up the privileges that only the start needs.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

/// Needed to look into the processes of other users and to read their executables.
const OTHERS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
/// Needed to attach, on kernels that have separated this from CAP_SYS_ADMIN.
const PROBES: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// Gives up for good all capabilities that attaching to later servers does not need, and returns the
/// remaining ones.
///
/// Call it before any thread is started, because each thread has capabilities of its own.
///
/// # Errors
///
/// Fails only if the kernel does; a process may always give up capabilities.
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

/// Returns the capabilities to keep of those in `held`.
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
    fn the_capabilities_for_attaching_are_kept() {
        let all = CapabilitySet::all();
        assert_eq!(needed(all), CapabilitySet::SYS_ADMIN | OTHERS);
        assert_eq!(needed(all - CapabilitySet::SYS_ADMIN), PROBES | OTHERS);
    }

    #[test]
    fn all_other_capabilities_are_given_up() -> anyhow::Result<()> {
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
