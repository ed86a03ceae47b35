//! Finds where a process runs by its control groups: in which container, pod or unit.

use std::fs::File;
use std::io::{self, Read as _};

/// How many hexadecimal digits the id of a container has: those of 32 random bytes.
pub(crate) const ID_DIGITS: usize = 64;

/// How many digits of a container's id `docker ps` and `podman ps` show.
pub(crate) const SHORT_ID_DIGITS: usize = 12;

/// How many hexadecimal digits the uid of a pod has.
const POD_UID_DIGITS: usize = 32;

/// How many bytes of `/proc/PID/cgroup` are read: it has a line with a path for each hierarchy.
const MAX_BYTES: u64 = 64 << 10;

/// Where a server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// The id of the innermost container, 64 hexadecimal digits.
    pub id: Option<String>,
    /// The uid of the Kubernetes pod, as the API writes it: with dashes.
    pub pod_uid: Option<String>,
    /// The path of the control group, as the kernel shows it to the agent; empty if it has no control groups.
    pub cgroup: String,
}

impl Container {
    pub fn short_id(&self) -> Option<&str> {
        self.id.as_deref()?.get(..SHORT_ID_DIGITS)
    }
}

/// The control groups of a process: the text of its `/proc/PID/cgroup` (`cgroups(7)`).
#[derive(Debug, Default)]
pub(crate) struct Cgroups(pub String);

impl Cgroups {
    /// Reads the control groups of a process: none if the kernel has none.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let mut text = Vec::new();
        match File::open(format!("/proc/{pid}/cgroup")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            file => {
                file?.take(MAX_BYTES).read_to_end(&mut text)?;
            }
        }
        Ok(Self(String::from_utf8_lossy(&text).into_owned()))
    }

    /// The ids of all containers that the process is in.
    pub(crate) fn container_ids(&self) -> impl Iterator<Item = &str> {
        self.paths().flat_map(|(_, path)| ids(path))
    }

    /// Returns where the process is, by its most specific path: one that names containers comes first, then one that
    /// names a pod, then any but `/`. If several are equally specific, as under cgroup v1, it takes cgroup v2's, else
    /// systemd's own, else the first.
    pub(crate) fn container(&self) -> Container {
        let tells = |(hierarchy, path): &(&str, &str)| {
            let order = match *hierarchy {
                "" => 2,
                "name=systemd" => 1,
                _ => 0,
            };
            (ids(path).count(), pod_uid(path), *path != "/", order)
        };
        // Of several equal ones, `max_by_key` takes the last.
        let paths: Vec<_> = self.paths().collect();
        let Some((_, path)) = paths.into_iter().rev().max_by_key(tells) else { return Container::default() };
        Container { id: ids(path).last().map(str::to_owned), pod_uid: pod_uid(path), cgroup: path.to_owned() }
    }

    /// Returns the controllers of each hierarchy (none for cgroup v2), and the path of the process in it.
    fn paths(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().filter_map(|line| {
            // The path may contain colons.
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
    }
}

pub(crate) fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the ids of the containers in a path, the outermost first.
///
/// Docker, containerd, CRI-O and Podman name a container's group after its id, under cgroup v1 and v2, on its own or
/// as a systemd scope: `ID`, `docker-ID.scope`, `kubepods-….slice:cri-containerd:ID`.
fn ids(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|group| {
        let id = group.strip_suffix(".scope").unwrap_or(group).rsplit(['-', ':']).next()?;
        (id.len() == ID_DIGITS && is_hexadecimal(id)).then_some(id)
    })
}

/// Returns the uid of the innermost pod in a path, with dashes.
///
/// The kubelet names a pod's group `podUID`; as a systemd slice, `kubepods-burstable-podUID.slice`, with underscores,
/// because a dash would begin another slice. A static pod's uid has no dashes at all.
fn pod_uid(path: &str) -> Option<String> {
    path.split(['/', ':']).rev().find_map(|group| {
        let (before, uid) = group.strip_suffix(".slice").unwrap_or(group).rsplit_once("pod")?;
        let digits = uid.replace(['_', '-'], "");
        let is_uid = digits.len() == POD_UID_DIGITS && is_hexadecimal(&digits);
        (is_uid && (before.is_empty() || before.ends_with('-'))).then(|| uid.replace('_', "-"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Cgroups, Container};

    const ID: &str = "3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2";
    const OTHER: &str = "9f2c1b7a8e6d5c4b3a29181706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3";
    const POD: &str = "2f1c1b6e-0f9c-4e62-a1f1-0d0a6ad7d8a4";
    const POD_IN_SLICE: &str = "2f1c1b6e_0f9c_4e62_a1f1_0d0a6ad7d8a4";

    /// Parses lines after replacing `ID`, `OTHER`, `UID` and `U_I_D`.
    fn cgroups(lines: &str) -> Cgroups {
        let text = lines.replace("OTHER", OTHER).replace("U_I_D", POD_IN_SLICE);
        Cgroups(text.replace("UID", POD).replace("ID", ID))
    }

    fn container(lines: &str) -> Container {
        cgroups(lines).container()
    }

    /// `testdata/cgroups.txt` has the groups under each runtime, and for some of them which path tells most.
    #[test]
    fn each_runtime_names_its_groups_by_the_id_and_kubernetes_the_group_above_by_the_pod() {
        for row in include_str!("testdata/cgroups.txt").lines() {
            let mut columns = row.split(" | ").skip(1);
            let lines = columns.next().unwrap_or_default().replace(';', "\n");
            let found = container(&lines);
            assert_eq!(found.id.as_deref(), lines.contains("ID").then_some(ID), "{row}");
            assert_eq!(found.short_id(), lines.contains("ID").then_some("3601745b3bd5"), "{row}");
            let has_pod = ["UID", "U_I_D"].iter().any(|uid| lines.contains(uid));
            assert_eq!(found.pod_uid.as_deref(), has_pod.then_some(POD), "{row}");
            if let Some(path) = columns.next() {
                assert_eq!(found.cgroup, path.replace("ID", ID), "{row}");
            }
        }
        assert_eq!(container("").cgroup, "");
        let hash = "0::/kubepods/burstable/pod5d2c1f90a8b3e7d64c01f2a3b4c5d6e7/ID";
        assert_eq!(container(hash).pod_uid.as_deref(), Some("5d2c1f90a8b3e7d64c01f2a3b4c5d6e7"));
    }

    #[test]
    fn a_container_in_a_container_has_both_ids_and_goes_by_the_inner_one() {
        let kind = "0::/docker/OTHER/kubelet.slice/kubelet-kubepods.slice/cri-containerd-ID.scope";
        assert_eq!(cgroups(kind).container_ids().collect::<Vec<_>>(), [OTHER, ID]);
        assert_eq!(container(kind).id.as_deref(), Some(ID));
        // Under cgroup v1, an inner runtime may use only some of the hierarchies.
        let some = "9:memory:/docker/OTHER/docker/ID\n1:name=systemd:/docker/OTHER\n0::/\n";
        assert_eq!(container(some).id.as_deref(), Some(ID));
    }

    #[test]
    fn a_process_of_the_host_has_no_id() {
        let v1 = "12:devices:/system.slice/redis-server.service\n1:name=systemd:/init.scope\n";
        let v2 = "0::/user.slice/user-1000.slice/session-3.scope\n";
        let sandbox = "0::/system.slice/pod-manager.service/podcafe\n";
        // One digit too few, and a letter that is not a digit.
        let short = format!("0::/docker/{}\n", ID.get(1..).unwrap_or(""));
        let other = format!("0::/docker/{}\n", ID.replace('3', "g"));
        for text in [v1, v2, sandbox, "0::/\n", "", "nonsense", "0:", &short, &other] {
            let found = container(text);
            assert_eq!((found.id, found.pod_uid), (None, None), "{text}");
        }
    }
}
