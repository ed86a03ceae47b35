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
    /// Returns the first digits of the container's id.
    pub fn short_id(&self) -> Option<&str> {
        self.id.as_deref()?.get(..SHORT_ID_DIGITS)
    }
}

/// The control groups of a process: the text of its `/proc/PID/cgroup` (`cgroups(7)`).
#[derive(Debug, Default)]
pub(crate) struct Cgroups(String);

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
        Ok(Self::parse(&String::from_utf8_lossy(&text)))
    }

    /// Takes the text of the file.
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the ids of all containers that the process is in.
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
        let Some((_, path)) = paths.into_iter().rev().max_by_key(tells) else {
            return Container::default();
        };
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

/// Returns whether a text has nothing but hexadecimal digits.
pub(crate) fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the ids of the containers in a path, the outermost first.
///
/// Docker, containerd, CRI-O and Podman name a container's group after its id, under cgroup v1 and v2, on its own or
/// as a systemd scope: `ID`, `docker-ID.scope`, `kubepods-….slice:cri-containerd:ID`.
fn ids(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|group| {
        let name = group.strip_suffix(".scope").unwrap_or(group);
        let id = name.rsplit(['-', ':']).next()?;
        (id.len() == ID_DIGITS && is_hexadecimal(id)).then_some(id)
    })
}

/// Returns the uid of the innermost pod in a path, with dashes.
///
/// The kubelet names a pod's group `podUID`; as a systemd slice, `kubepods-burstable-podUID.slice`, with underscores,
/// because a dash would begin another slice. A static pod's uid has no dashes at all.
fn pod_uid(path: &str) -> Option<String> {
    let mut groups = path.split(['/', ':']).rev();
    groups.find_map(|group| {
        let name = group.strip_suffix(".slice").unwrap_or(group);
        let (before, uid) = name.rsplit_once("pod")?;
        let digits = uid.replace(['_', '-'], "");
        let is_uid = digits.len() == POD_UID_DIGITS && is_hexadecimal(&digits);
        (is_uid && (before.is_empty() || before.ends_with('-'))).then(|| uid.replace('_', "-"))
    })
}

#[cfg(test)]
mod tests;
