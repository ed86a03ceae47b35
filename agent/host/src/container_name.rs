//! Finds the names of a container and its pod, if its runtime keeps them within reach.
//!
//! What other programs store is not trusted: a name is taken only if it belongs to the container's id and is spelt like
//! a container's name. If anything goes wrong, there is no name.

use std::fs;
use std::io::Read as _;
use std::path::PathBuf;

use crate::cgroups::Container;
use crate::debug_file::root_of;
use crate::regular::open_in;
use crate::scanner::observed::ObservedProcess;

/// The host's first process: its root directory is the host's, even for an agent in a container. An agent that may not
/// enter it looks in its own, which is the same on the host itself.
const INIT: u32 = 1;

/// How many ancestors of a server are looked at: the container's init process and shells may be between it and
/// `conmon`.
const MAX_PARENTS: usize = 8;

/// The largest file that is read. That of a container with hundreds of mounts has some 100 KiB.
const MAX_BYTES: u64 = 1 << 20;

/// The longest name: twice that of a Kubernetes object.
const MAX_NAME: usize = 506;

/// The runtimes' files about a container: the path before its id, and after it.
const FILES: [(&str, &str); 3] = [
    ("/run/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io", "config.json"),
    ("/var/lib/docker/containers", "config.v2.json"),
];

/// The kubelet's links to the logs of containers, from the root directory. The chart mounts it: a security module may
/// close the root directory of the host's first process to the agent.
const LINKS: &str = "var/log/containers";
/// The most links that are looked at: a node has some hundreds.
const MOST_LINKS: usize = 10_000;

/// What a container is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerName {
    pub name: String,
    /// The Kubernetes pod that it is in.
    pub pod: Option<PodName>,
}

/// What a pod is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

impl ContainerName {
    /// Finds the name of the container in which the process `pid` runs. Blocks.
    pub fn of(pid: u32, container: &Container) -> Option<Self> {
        let id = container.id.as_deref()?;
        if let Some(name) = by_conmon(pid, id) { Self::given(&name) } else { by_files(id).or_else(|| by_links(id)) }
    }

    /// Parses a name that a runtime gave. Docker's begin with a slash, and those of containers in Kubernetes also name
    /// the pod.
    fn given(name: &str) -> Option<Self> {
        let name = name.strip_prefix('/').unwrap_or(name);
        let fields: Vec<_> = name.split('_').collect();
        match fields[..] {
            ["k8s", container, pod, namespace, _uid, _attempt] => Self::spelt(container, Some((namespace, pod))),
            _ => Self::spelt(name, None),
        }
    }

    /// Takes a name, and the namespace and name of a pod, if they are spelt correctly.
    fn spelt(name: &str, pod: Option<(&str, &str)>) -> Option<Self> {
        let name = Some(name).filter(|name| is_name(name))?;
        let pod = pod.filter(|(namespace, name)| is_name(namespace) && is_name(name));
        Some(Self {
            name: name.to_owned(),
            pod: pod.map(|(namespace, name)| PodName { namespace: namespace.to_owned(), name: name.to_owned() }),
        })
    }
}

fn is_name(name: &str) -> bool {
    let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_usual)
}

/// Returns the name in the command line of `conmon`, which starts containers for Podman and CRI-O.
fn by_conmon(pid: u32, id: &str) -> Option<String> {
    let mut process = ObservedProcess::of(pid).ok()?;
    for _ in 0..MAX_PARENTS {
        process = ObservedProcess::of(process.parent).ok()?;
        if process.comm == "conmon"
            && let Some(name) = name_in(&process.arguments, id)
        {
            return Some(name.to_owned());
        }
    }
    None
}

fn name_in<'a>(arguments: &'a [String], id: &str) -> Option<&'a str> {
    let value = |option: &str| {
        let mut pairs = arguments.iter().zip(arguments.iter().skip(1));
        pairs.find(|(first, _)| *first == option).map(|(_, value)| value.as_str())
    };
    value("-n").filter(|_| value("-c") == Some(id))
}

fn roots() -> [PathBuf; 2] {
    [root_of(INIT), PathBuf::from("/")]
}

/// Returns what the kubelet calls the container with this id.
fn by_links(id: &str) -> Option<ContainerName> {
    let links = roots().map(|root| fs::read_dir(root.join(LINKS)));
    let mut links = links.into_iter().flatten().flatten().flatten().take(MOST_LINKS);
    links.find_map(|link| name_of_link(link.file_name().to_str()?, id))
}

/// Parses `POD_NAMESPACE_CONTAINER-ID.log`.
fn name_of_link(link: &str, id: &str) -> Option<ContainerName> {
    let (pod, rest) = link.split_once('_')?;
    let (namespace, container) = rest.split_once('_')?;
    let name = container.strip_suffix(".log")?.strip_suffix(id)?.strip_suffix('-')?;
    ContainerName::spelt(name, Some((namespace, pod)))
}

/// Returns what containerd or Docker stores about the container with this id.
fn by_files(id: &str) -> Option<ContainerName> {
    roots().iter().find_map(|root| {
        FILES.iter().find_map(|(directory, file)| {
            let file = open_in(root, format!("{directory}/{id}/{file}").as_ref()).ok()?;
            let mut text = Vec::new();
            file.take(MAX_BYTES).read_to_end(&mut text).ok()?;
            name_at(&text)
        })
    })
}

/// Returns the names in a runtime's file: in containerd's they are annotations.
fn name_at(text: &[u8]) -> Option<ContainerName> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    if let Some(name) = value.get("Name") {
        return ContainerName::given(name.as_str()?);
    }
    let annotations = value.get("annotations")?;
    let annotation = |of: &str| annotations.get(format!("io.kubernetes.cri.{of}"))?.as_str();
    let pod = annotation("sandbox-namespace").zip(annotation("sandbox-name"));
    ContainerName::spelt(annotation("container-name")?, pod)
}

#[cfg(test)]
mod tests {
    use super::{Container, ContainerName, MAX_NAME, name_at, name_in, name_of_link};

    const ID: &str = "3601745b3bd54d9780436faa5f0e4f72bb46231663bb99a6bb892764917832c2";

    #[test]
    fn the_command_line_of_conmon_has_the_name() {
        // Podman 4.3.1 on Debian 12.
        let line = format!(
            "/usr/bin/conmon --api-version 1 -c {ID} -u {ID} -r /usr/sbin/runc -b /var/lib/containers/x/userdata \
             -p /run/x/pidfile -n cache --exit-dir /run/libpod/exits --full-attach -l journald"
        );
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(name_in(&arguments, ID), Some("cache"));
        assert_eq!(name_in(&arguments, &ID.replace('3', "4")), None);
        assert_eq!(name_in(&arguments[..13], ID), None);
        assert_eq!(name_in(&[], ID), None);
    }

    /// The container, and the namespace and the name of its pod.
    fn words(name: Option<ContainerName>) -> Option<String> {
        let ContainerName { name, pod } = name?;
        let pod = pod.map_or_else(String::new, |pod| format!(" {} {}", pod.namespace, pod.name));
        Some(name + &pod)
    }

    #[test]
    fn the_files_of_runtimes_have_the_names() {
        // containerd 1.7.
        let bundle = br#"{"ociVersion": "1.1.0", "annotations": {"io.kubernetes.cri.container-name": "redis",
            "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-name": "cart-0",
            "io.kubernetes.cri.sandbox-namespace": "shop"}}"#;
        let alone = br#"{"annotations": {"io.kubernetes.cri.container-name": "redis"}}"#;
        let docker = br#"{"ID": "3601", "Name": "/cache", "Driver": "overlay2"}"#;
        for (text, name) in [(&bundle[..], "redis shop cart-0"), (alone, "redis"), (docker, "cache")] {
            assert_eq!(words(name_at(text)).as_deref(), Some(name));
        }
        for text in [&b""[..], b"{}", b"[1]", br#"{"Name": 7}"#, br#"{"Name": "/cut"#] {
            assert_eq!(name_at(text), None);
        }
        let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
        assert_eq!(name_at(&deep), None);
    }

    #[test]
    fn the_kubelets_links_have_the_names() {
        // Kubernetes 1.34.
        let link = format!("cart-0_shop_redis-{ID}.log");
        assert_eq!(words(name_of_link(&link, ID)).as_deref(), Some("redis shop cart-0"));
        // Of another container, and cut to 255 bytes, as the kubelet does.
        for other in [link.replace('3', "4"), link.replace("832c2", ""), format!("redis-{ID}.log"), String::new()] {
            assert_eq!(name_of_link(&other, ID), None);
        }
    }

    #[test]
    fn a_name_is_spelt_as_names_are() {
        for (given, name) in [
            ("/cache", "cache"),
            ("cache_1.a-b", "cache_1.a-b"),
            ("k8s_redis_cart-0_shop_2f1c1b6e-0f9c-4e62-a1f1-0d0a6ad7d8a4_0", "redis shop cart-0"),
            ("k8s_redis_a\"b_shop_U_0", "redis"),
            ("/k8s_cache", "k8s_cache"),
        ] {
            assert_eq!(words(ContainerName::given(given)).as_deref(), Some(name));
        }
        let long = "x".repeat(MAX_NAME + 1);
        for text in ["", "/", "a b", "a\"", "a\n", "ä", "a/b", &long] {
            assert_eq!(ContainerName::given(text), None, "{text}");
        }
    }

    #[test]
    fn a_process_in_no_container_has_no_name() {
        let container = Container { id: Some(ID.to_owned()), ..Container::default() };
        assert_eq!(ContainerName::of(std::process::id(), &container), None);
    }
}
