//! What the kernel's security modules mean for this process, in words.

use std::fs;

use rustix::thread::CapabilitySet;

use crate::confinement::Confinement;

/// Yama's setting. At [`YAMA_NOBODY`] no process may read the memory of another, whatever its capabilities.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
const YAMA_NOBODY: u8 = 3;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Returns what each module that is there says, and what that means here.
pub fn security_modules() -> Vec<String> {
    let read = |file| fs::read_to_string(file).ok();
    let label = || read("/proc/self/attr/current").unwrap_or_default();
    let is_there = |file, on: &str| read(file).is_some_and(|state| state.trim() == on);
    let apparmor = is_there("/sys/module/apparmor/parameters/enabled", "Y");
    let selinux = is_there("/sys/fs/selinux/enforce", "1");
    let modules = [
        yama(),
        read(LOCKDOWN).map(|state| lockdown(&state)),
        apparmor.then(|| apparmor_label(&label())),
        selinux.then(|| selinux_label(&label())),
    ];
    modules.into_iter().flatten().collect()
}

/// Returns what to do if Yama lets nobody read the memory of another process.
pub(crate) fn yama_forbids() -> Option<String> {
    let scope = fs::read_to_string(YAMA).ok()?;
    (scope.trim().parse() == Ok(YAMA_NOBODY)).then(|| {
        format!(
            "kernel.yama.ptrace_scope is {YAMA_NOBODY}, so no process may read the memory of another: set it to 2 or less in \
             /etc/sysctl.d, and reboot, as it cannot be lowered"
        )
    })
}

fn yama() -> Option<String> {
    let scope = fs::read_to_string(YAMA).ok()?;
    let may = (Confinement::of_process().relevant()).is_some_and(|held| held.contains(CapabilitySet::SYS_PTRACE));
    let scope = scope.trim();
    Some(yama_forbids().unwrap_or_else(|| {
        let means = match (scope, may) {
            ("0", _) => "which forbids nothing",
            (_, true) => "which forbids nothing to a process with CAP_SYS_PTRACE, as this one",
            (_, false) => "so servers cannot be read without CAP_SYS_PTRACE, which this process lacks",
        };
        format!("kernel.yama.ptrace_scope is {scope}, {means}")
    }))
}

fn lockdown(state: &str) -> String {
    let chosen = state.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map_or(state.trim(), |(chosen, _)| chosen) {
        state @ ("none" | "integrity") => {
            format!("lockdown is {state}, which forbids nothing here")
        }
        state => format!(
            "lockdown is {state}: BPF programs may not read the kernel's memory, so it refuses the agent's; set it to integrity"
        ),
    }
}

fn apparmor_label(label: &str) -> String {
    match label.trim().trim_end_matches('\0') {
        "unconfined" => "AppArmor does not confine this process".to_owned(),
        label => format!("AppArmor confines this process to the profile {label}"),
    }
}

fn selinux_label(label: &str) -> String {
    let label = label.trim().trim_end_matches('\0');
    format!("SELinux is enforcing, for this process as {label}")
}

#[cfg(test)]
mod tests {
    use super::{apparmor_label, lockdown};

    #[test]
    fn the_chosen_lockdown_and_the_profile_are_named() {
        let said = lockdown("none [integrity] confidentiality\n");
        assert_eq!(said, "lockdown is integrity, which forbids nothing here");
        let said = lockdown("none integrity [confidentiality]\n");
        assert!(said.contains("may not read the kernel's memory"), "{said}");
        assert!(apparmor_label("unconfined\n").contains("does not confine"));
        assert!(apparmor_label("docker-default (enforce)\n").ends_with("docker-default (enforce)"));
    }
}
