//! The capabilities that watching needs, and giving up those that only the start needs.

use evictscope_host::{LINKS, OTHERS};
use evictscope_probes::Probes;
use rustix::io;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// Returns the capabilities that attaching needs on this kernel, as the probes on the agent itself have shown.
pub fn to_attach(probes: &Probes) -> CapabilitySet {
    match probes.has_multi_links() {
        true => LINKS,
        // Not on each kernel: see docs/CONFIGURATION.md.
        false => LINKS | CapabilitySet::SYS_ADMIN,
    }
}

/// Gives up for good all capabilities that attaching to later servers does not need, and returns the remaining ones.
/// `to_attach` is what attaching needs.
///
/// Call it before any thread is started, because each thread has its own capabilities.
///
/// # Errors
///
/// Fails only if the kernel does; a process may always give up capabilities.
pub fn drop_unneeded(to_attach: CapabilitySet) -> io::Result<CapabilitySet> {
    let held = capabilities(None)?.permitted;
    let kept = held & needed(held, to_attach);
    // No program is executed but this one (`planning`), and it cannot gain anything.
    set_no_new_privs(true)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            // What opening executables and debug files needs. The ambient capabilities are only these.
            inheritable: kept & OTHERS,
        },
    )?;
    Ok(kept)
}

/// Returns which capabilities of `held` to keep.
fn needed(held: CapabilitySet, to_attach: CapabilitySet) -> CapabilitySet {
    match held.contains(to_attach) {
        true => to_attach | OTHERS,
        // It includes the others.
        false => to_attach | OTHERS | CapabilitySet::SYS_ADMIN,
    }
}

#[cfg(test)]
mod tests {
    use evictscope_host::{LINKS, OTHERS};
    use rustix::thread::{CapabilitySet, capabilities};

    use super::{drop_unneeded, needed};

    #[test]
    fn the_capabilities_for_attaching_are_kept() {
        let (all, admin) = (CapabilitySet::all(), CapabilitySet::SYS_ADMIN);
        assert_eq!(needed(all, LINKS), LINKS | OTHERS);
        assert_eq!(needed(all, LINKS | admin), LINKS | admin | OTHERS);
        // Without the two that it includes, it must stay.
        assert!(needed(all - LINKS, LINKS).contains(admin));
    }

    #[test]
    fn all_other_capabilities_are_given_up() -> anyhow::Result<()> {
        // Capabilities belong to a thread, so no other test is touched.
        let thread = std::thread::spawn(|| anyhow::Ok((drop_unneeded(LINKS)?, capabilities(None)?)));
        let (kept, now) = thread.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        assert_eq!(now.permitted, kept);
        assert_eq!(now.effective, kept);
        assert_eq!(now.inheritable, kept & OTHERS);
        assert!(!kept.contains(CapabilitySet::DAC_OVERRIDE));
        Ok(())
    }
}
