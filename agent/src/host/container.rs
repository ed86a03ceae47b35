//! Finds the container of a process by its control groups, without any I/O.

/// How many hexadecimal digits the id of a container has: those of 32 random bytes.
pub(super) const ID_DIGITS: usize = 64;

/// Returns the ids of the containers that a process is in, the outermost first, from the text of its
/// `/proc/PID/cgroup` (`cgroups(7)`).
///
/// Docker, containerd, CRI-O and Podman name a container's group by its id, under cgroup v1 and v2, on its own
/// or as a systemd scope: `ID`, `docker-ID.scope`, `kubepods-….slice:cri-containerd:ID`.
pub(super) fn container_ids(cgroups: &str) -> impl Iterator<Item = &str> {
    cgroups
        .lines()
        // Hierarchy, controllers and path; the path may have colons of its own.
        .filter_map(|line| line.splitn(3, ':').nth(2))
        .flat_map(|path| path.split('/'))
        .filter_map(id_of_group)
}

/// Returns whether a text has nothing but hexadecimal digits.
pub(super) fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn id_of_group(group: &str) -> Option<&str> {
    let name = group.strip_suffix(".scope").unwrap_or(group);
    let id = name.rsplit(['-', ':']).next()?;
    (id.len() == ID_DIGITS && is_hexadecimal(id)).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::container_ids;

    const ID: &str = "3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2";
    const OTHER: &str = "9f2c1b7a8e6d5c4b3a29181706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3";

    /// Returns the ids in lines in which `ID` and `OTHER` are written as such.
    fn ids(lines: &str) -> Vec<String> {
        let text = lines.replace("OTHER", OTHER).replace("ID", ID);
        container_ids(&text).map(str::to_owned).collect()
    }

    #[test]
    fn each_runtime_names_its_groups_by_the_id() {
        for (runtime, line) in [
            ("Docker, v1, cgroupfs", "12:memory:/docker/ID"),
            (
                "Docker, v1, systemd",
                "4:cpu,cpuacct:/system.slice/docker-ID.scope",
            ),
            ("Docker, v2, systemd", "0::/system.slice/docker-ID.scope"),
            ("Docker, v2, cgroupfs", "0::/docker/ID"),
            (
                "Docker, v2, rootless",
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope",
            ),
            ("Docker, seen from another group", "0::/../docker-ID.scope"),
            (
                "Docker with systemd inside",
                "1:name=systemd:/docker/ID/init.scope",
            ),
            (
                "Podman, v2, root",
                "0::/machine.slice/libpod-ID.scope/container",
            ),
            (
                "Podman, v2, rootless",
                "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope",
            ),
            ("Podman, v1, cgroupfs", "9:pids:/libpod_parent/libpod-ID"),
            ("containerd, nerdctl", "0::/system.slice/nerdctl-ID.scope"),
            ("containerd, cgroupfs", "0::/default/ID"),
            (
                "Kubernetes, containerd, v2, systemd",
                "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2f1c1b6e_0f9c_4e62_a1f1_0d0a6ad7d8a4.slice/cri-containerd-ID.scope",
            ),
            (
                "Kubernetes, containerd, v1, cgroupfs",
                "11:cpuset:/kubepods/besteffort/pod2f1c1b6e-0f9c-4e62-a1f1-0d0a6ad7d8a4/ID",
            ),
            (
                "Kubernetes, containerd with cgroupfs under systemd",
                "0::/system.slice/containerd.service/kubepods-burstable-pod2f1c1b6e_0f9c_4e62_a1f1_0d0a6ad7d8a4.slice:cri-containerd:ID",
            ),
            (
                "Kubernetes, CRI-O, v2",
                "0::/kubepods.slice/kubepods-pod2f1c1b6e_0f9c_4e62_a1f1_0d0a6ad7d8a4.slice/crio-ID.scope/container",
            ),
            (
                "Kubernetes, Docker, v1, systemd",
                "8:devices:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod2f1c1b6e_0f9c_4e62_a1f1_0d0a6ad7d8a4.slice/docker-ID.scope",
            ),
            ("Amazon ECS", "3:cpu:/ecs/9d8a4f0b7c6e4d2fb1a0/ID"),
        ] {
            assert_eq!(ids(line), [ID], "{runtime}");
        }
    }

    #[test]
    fn a_container_in_a_container_has_both_ids() {
        let kind = "0::/docker/OTHER/kubelet.slice/kubelet-kubepods.slice/cri-containerd-ID.scope";
        assert_eq!(ids(kind), [OTHER, ID]);
    }

    #[test]
    fn a_process_of_the_host_has_no_id() {
        let v1 = "12:devices:/system.slice/redis-server.service\n1:name=systemd:/init.scope\n";
        let v2 = "0::/user.slice/user-1000.slice/session-3.scope\n";
        // A digit too few, and a letter that is no digit.
        let short = format!("0::/docker/{}\n", ID.get(1..).unwrap_or(""));
        let other = format!("0::/docker/{}\n", ID.replace('3', "g"));
        for text in [v1, v2, "0::/\n", "", "nonsense", &short, &other] {
            assert_eq!(container_ids(text).next(), None, "{text}");
        }
    }
}
