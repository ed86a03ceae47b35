//! The filters of system calls: SystemCallFilter, RestrictAddressFamilies, RestrictNamespaces and
//! MemoryDenyWriteExecute.

use std::collections::BTreeMap;

use anyhow::Context as _;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use syscalls::Sysno;

/// Puts this process under them; `allowed` are the names of system calls, with commas between.
pub fn apply(allowed: &str) -> anyhow::Result<()> {
    for filter in filters(allowed)? {
        seccompiler::apply_filter(&filter)?;
    }
    Ok(())
}

fn filters(allowed: &str) -> anyhow::Result<[BpfProgram; 2]> {
    // Names of other architectures' calls are no calls here.
    let numbers = allowed
        .split(',')
        .filter_map(|name| name.parse::<Sysno>().ok());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = numbers
        .map(|number| (i64::from(number.id()), Vec::new()))
        .collect();
    let mut only = |call: Sysno, argument, conditions: &[(Op, u64)]| -> anyhow::Result<()> {
        let rules = rules
            .get_mut(&i64::from(call.id()))
            .context("not allowed at all")?;
        for (operator, value) in conditions {
            let condition = SeccompCondition::new(argument, Len::Dword, operator.clone(), *value)?;
            rules.push(SeccompRule::new(vec![condition])?);
        }
        Ok(())
    };
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];
    let families = families.map(|family| (Op::Eq, u64::from(family.cast_unsigned())));
    only(Sysno::socket, 0, &families)?;
    let [write, execute] =
        [libc::PROT_WRITE, libc::PROT_EXEC].map(|flag| u64::from(flag.cast_unsigned()));
    let both = Op::MaskedEq(write | execute);
    only(
        Sysno::mmap,
        2,
        &[(both.clone(), 0), (both.clone(), write), (both, execute)],
    )?;
    only(Sysno::mprotect, 2, &[(Op::MaskedEq(execute), 0)])?;
    let namespaces = libc::CLONE_NEWNS
        | libc::CLONE_NEWCGROUP
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET;
    only(
        Sysno::clone,
        0,
        &[(Op::MaskedEq(u64::from(namespaces.cast_unsigned())), 0)],
    )?;
    for forbidden in [Sysno::unshare, Sysno::setns] {
        rules.remove(&i64::from(forbidden.id()));
    }

    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, TargetArch::x86_64)?;
    // As systemd does: its flags are in memory, where no filter sees them; libc then takes clone.
    let clone3 = BTreeMap::from([(i64::from(Sysno::clone3.id()), Vec::new())]);
    let missing = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let no_clone3 = SeccompFilter::new(clone3, SeccompAction::Allow, missing, TargetArch::x86_64)?;
    // The last one may forbid to add filters.
    Ok([no_clone3.try_into()?, filter.try_into()?])
}
