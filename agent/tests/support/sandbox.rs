//! The restrictions of the systemd unit, without systemd: as far as a process can be put under them
//! by the kernel's own means.
//!
//! Not here: what needs control groups (MemoryMax, CPUQuota, TasksMax, device access), a
//! `/dev` and an IPC namespace of its own, and protections that the missing capabilities give already
//! (ProtectKernelModules, ProtectClock, ProtectHostname, ProtectKernelLogs, RestrictSUIDSGID).

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};
use syscalls::Sysno;

use super::unit::Unit;

/// The variable in which [`command`] hands over which system calls are allowed.
const ALLOWED: &str = "EVICTSCOPE_TEST_ALLOWED_CALLS";
/// A user without any right of its own.
const USER: &str = "64999";
/// Where the files under test lie inside: a file system of its own, as /tmp and /root are hidden.
const INSIDE: &str = "/srv";

/// Mounts as the unit asks for: $1 and $2 are programs to take along; the rest is executed.
const MOUNTS: &str = r#"
set -e
mount -t proc -o hidepid=invisible proc /proc
# ProtectSystem=strict: everything but /dev, /proc and /sys.
for target in $(findmnt -rn -o TARGET); do
    case "$target" in
    /proc* | /sys* | /dev*) ;;
    *) mount -o remount,bind,ro "$target" ;;
    esac
done
mount -t tmpfs -o mode=755 inside /srv
cp "$1" /srv/evictscope; cp "$2" /srv/test; shift 2
mount -o remount,ro /srv
# ProtectHome and PrivateTmp.
for hidden in /home /root; do mount -t tmpfs -o mode=000,ro hidden "$hidden"; done
for own in /tmp /var/tmp; do mount -t tmpfs -o mode=1777 own "$own"; done
cd /
exec "$@"
"#;

/// A command that becomes `evictscope run` with `options` under the restrictions of `unit`; `child` is
/// the test of this executable that calls [`enter`].
pub fn command(unit: &Unit, child: &str, options: &[&str]) -> anyhow::Result<Command> {
    for mounted in ["ProtectHome", "PrivateTmp", "NoNewPrivileges"] {
        ensure!(
            unit.is_on(mounted)?,
            "{mounted} is applied here and not in the unit"
        );
    }
    ensure!(unit.one("ProtectSystem")? == "strict" && unit.one("ProtectProc")? == "invisible");
    ensure!(unit.one("ExecStart")? == "/usr/bin/evictscope run");
    let bounding = capabilities(unit.one("CapabilityBoundingSet")?)?;
    let ambient = capabilities(unit.one("AmbientCapabilities")?)?;

    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            MOUNTS,
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_evictscope"))
        .arg(std::env::current_exe()?)
        .arg("prlimit")
        .arg(format!("--nofile={}", unit.one("LimitNOFILE")?))
        .args([
            "setpriv",
            "--reuid",
            USER,
            "--regid",
            USER,
            "--clear-groups",
        ])
        .args(["--no-new-privs", "--bounding-set", &bounding])
        .args(["--inh-caps", &ambient, "--ambient-caps", &ambient])
        .arg(format!("{INSIDE}/test"))
        .args(["--exact", child, "--include-ignored", "--nocapture", "--"])
        .args(options)
        .env(ALLOWED, Vec::from_iter(unit.system_calls()?).join(","));
    Ok(command)
}

/// In a process that [`command`] has started: puts it under the filter of system calls and becomes the
/// agent. Returns only in any other process.
pub fn enter() -> anyhow::Result<()> {
    let Ok(allowed) = std::env::var(ALLOWED) else {
        return Ok(());
    };
    let unit = std::env::args()
        .skip_while(|argument| argument != "--")
        .skip(1);
    let mut agent = Command::new(Path::new(INSIDE).join("evictscope"));
    agent.arg("run").args(unit).env_remove(ALLOWED);
    for filter in filters(&allowed)? {
        seccompiler::apply_filter(&filter)?;
    }
    Err(agent.exec()).context("cannot execute evictscope")
}

/// `CAP_A CAP_B` as setpriv wants it.
fn capabilities(names: &str) -> anyhow::Result<String> {
    let names = names.split_whitespace().map(|name| {
        let name = name.strip_prefix("CAP_").context("not a capability")?;
        Ok(format!("+{}", name.to_lowercase()))
    });
    let names = names.collect::<anyhow::Result<Vec<_>>>()?;
    Ok(format!("-all,{}", names.join(",")))
}

/// SystemCallFilter, RestrictAddressFamilies, RestrictNamespaces and MemoryDenyWriteExecute.
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
