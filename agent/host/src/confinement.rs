//! What this process may not do, even as root, what would allow it, and what security modules say: for messages.

use std::fs;
use std::sync::LazyLock;

use procfs::process::Process;
use rustix::thread::{CapabilitySet, capabilities};

/// Needed to look into the processes of other users and to read their executables.
pub const OTHERS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
/// Needed to load the programs and to attach them by uprobe_multi links.
pub const LINKS: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

/// The map of a user namespace that has all users.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];

/// The pid of the kernel thread that starts all others, in the host's namespaces. Process 1 may be closed even to root.
const KTHREADD: &str = "2";

const ALSO_SYS_ADMIN: &str = "; kernels before Linux 6.6 also ask for CAP_SYS_ADMIN";

/// What to do if a process may not open more files.
pub const MORE_FILES: &str =
    "allow more (`ulimit -n 8192`; of a service, LimitNOFILE=8192; of a container, --ulimit nofile=8192)";

/// What the kernel restricts this process to.
#[derive(Clone, Copy, Debug)]
pub struct Confinement {
    /// `None` if it cannot be read.
    held: Option<CapabilitySet>,
    has_own_users: bool,
    has_filter: bool,
}

impl Confinement {
    /// Returns the confinement of this process at the first call: no message is about what the agent gives up later.
    pub fn of_process() -> &'static Self {
        static OWN: LazyLock<Confinement> = LazyLock::new(Confinement::read);
        &OWN
    }

    /// Returns the capabilities that this process holds and the agent may need; `None` if they cannot be read.
    pub fn relevant(&self) -> Option<CapabilitySet> {
        let relevant = LINKS | OTHERS | CapabilitySet::SYS_ADMIN;
        self.held.map(|held| held & relevant)
    }

    /// Reads the confinement of the calling thread. What cannot be read is assumed to be absent.
    fn read() -> Self {
        let users = std::fs::read_to_string("/proc/self/uid_map");
        let status = Process::myself().and_then(|myself| myself.status());
        Self {
            held: capabilities(None).ok().map(|sets| sets.effective),
            has_own_users: users.is_ok_and(|map| !map.split_whitespace().eq(ALL_USERS)),
            has_filter: status.is_ok_and(|status| status.seccomp.is_some_and(|mode| mode != 0)),
        }
    }

    /// Returns what to do if the kernel refuses what needs these capabilities; `None` if they are held or unknown.
    pub fn lacks(&self, needed: CapabilitySet) -> Option<String> {
        if self.has_own_users {
            return Some(
                "this process is in a user namespace, whose capabilities do not count: run the container as root (not \
                 rootless), with --userns=host and no --uidmap (podman, Docker) or hostUsers: true (Kubernetes)"
                    .to_owned(),
            );
        }
        let held = match self.held? {
            // CAP_SYS_ADMIN includes them.
            held if held.contains(CapabilitySet::SYS_ADMIN) => held | LINKS,
            held => held,
        };
        let missing = needed - held;
        (!missing.is_empty()).then(|| {
            let names = capability_names(missing);
            let added = names.replace("CAP_", "");
            // Docker takes no list.
            let options = names.replace("CAP_", "--cap-add=").replace(',', "");
            format!(
                "this process lacks {names}: run it as root; in a container, add {options} (podman, Docker) or \
                 capabilities.add: [{added}] (Kubernetes)"
            )
        })
    }

    /// Returns what to do if the kernel refuses to load programs or to attach probes.
    pub fn lacks_links(&self, needed: CapabilitySet) -> String {
        let filter = || {
            self.has_filter.then(|| {
                "this process has these capabilities, but a filter of system calls, which may forbid bpf or \
                 perf_event_open: add --security-opt seccomp=/usr/share/evictscope/seccomp.json (podman, Docker; the \
                 package and the tarball bring this file), a seccompProfile that allows both (Kubernetes), or \
                 SystemCallFilter=bpf perf_event_open (a unit). If it allows both, the kernel may be locked down \
                 (/sys/kernel/security/lockdown), or a security module may forbid it"
                    .to_owned()
            })
        };
        // Names everything that is missing, to be added at once.
        let lacks = self.lacks(needed).and(self.lacks(needed | OTHERS)).map(|why| {
            let asks_for_more = if needed.contains(CapabilitySet::SYS_ADMIN) { "" } else { ALSO_SYS_ADMIN };
            why + asks_for_more
        });
        lacks.or_else(filter).unwrap_or_else(|| {
            "this process has these capabilities: the kernel may be locked down \
             (/sys/kernel/security/lockdown), or a security module may forbid it"
                .to_owned()
        })
    }

    /// Returns what to do if another process may not be looked into.
    pub fn lacks_others(&self) -> String {
        self.lacks(OTHERS).unwrap_or_else(|| {
            "this process has the capabilities for it, so a security module may forbid it: in a container, add \
             --security-opt apparmor=unconfined, or with SELinux --security-opt label=disable (podman, Docker), or \
             appArmorProfile: {type: Unconfined} and seLinuxOptions: {type: spc_t} (Kubernetes)"
                .to_owned()
        })
    }
}

/// Returns the names of capabilities, as the kernel's `capability.h` and systemd spell them.
pub fn capability_names(set: CapabilitySet) -> String {
    set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect::<Vec<_>>().join(", ")
}

/// Returns whether this process has its own network namespace, so that nobody outside can reach its loopback addresses.
/// `None` if that cannot be determined.
pub fn has_own_network() -> Option<bool> {
    let network = |process| std::fs::read_link(format!("/proc/{process}/ns/net"));
    let (this, hosts) = (network("self").ok()?, network(KTHREADD).ok()?);
    Some(this != hosts)
}

/// Yama's setting. At [`YAMA_NOBODY`] no process may read the memory of another, whatever its capabilities.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";
const YAMA_NOBODY: u8 = 3;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

/// Returns what each module that is there says, and what that means here.
pub fn security_modules() -> Vec<String> {
    let read = |file| fs::read_to_string(file).ok();
    let is_on = |file, on: &str| read(file).is_some_and(|state| state.trim() == on);
    let label = read("/proc/self/attr/current").unwrap_or_default();
    let label = label.trim().trim_end_matches('\0');
    let modules = [
        yama(),
        read(LOCKDOWN).map(|state| lockdown(&state)),
        is_on("/sys/module/apparmor/parameters/enabled", "Y").then(|| apparmor_label(label)),
        is_on("/sys/fs/selinux/enforce", "1").then(|| format!("SELinux is enforcing, for this process as {label}")),
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
    match label {
        "unconfined" => "AppArmor does not confine this process".to_owned(),
        label => format!("AppArmor confines this process to the profile {label}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::CapabilitySet;

    use super::{Confinement, LINKS, OTHERS, apparmor_label, lockdown};

    /// A container with everything that the agent needs.
    const ENOUGH: Confinement =
        Confinement { held: Some(LINKS.union(OTHERS)), has_own_users: false, has_filter: false };

    #[test]
    fn what_is_missing_is_named_with_its_flag() {
        let without = Confinement { held: Some(CapabilitySet::BPF), ..ENOUGH };
        for (confined, flags) in [
            (without, ["CAP_PERFMON", "--cap-add=PERFMON (podman, Docker)", "capabilities.add: ["]),
            (Confinement { has_own_users: true, ..ENOUGH }, ["--userns=host", "no --uidmap", "hostUsers: true"]),
            (Confinement { has_filter: true, ..ENOUGH }, ["seccomp.json", "seccompProfile", "SystemCallFilter="]),
            (ENOUGH, ["locked down", "lockdown", "security module"]),
        ] {
            let advice = confined.lacks_links(LINKS);
            assert!(flags.iter().all(|flag| advice.contains(flag)), "{advice}");
        }
    }

    #[test]
    fn a_filter_is_not_blamed_for_what_files_refuse() {
        let filtered = Confinement { has_filter: true, ..ENOUGH };
        assert!(filtered.lacks_others().contains("apparmor=unconfined"));
        let advice = Confinement { held: Some(LINKS), ..filtered }.lacks_others();
        for option in ["--cap-add=SYS_PTRACE", "--cap-add=DAC_READ_SEARCH"] {
            assert!(advice.contains(option), "{advice}");
        }
    }

    #[test]
    fn the_chosen_lockdown_and_the_profile_are_named() {
        let harmless = lockdown("none [integrity] confidentiality\n");
        assert_eq!(harmless, "lockdown is integrity, which forbids nothing here");
        let refused = lockdown("none integrity [confidentiality]\n");
        assert!(refused.contains("may not read the kernel's memory"), "{refused}");
        assert!(apparmor_label("unconfined").contains("does not confine"));
        assert!(apparmor_label("docker-default (enforce)").ends_with("docker-default (enforce)"));
    }
}
