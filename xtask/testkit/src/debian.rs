//! Debian's packages: the programs that the tasks need from them, and how they are installed. And packages of any
//! suite, unpacked: this machine's packages and lists of packages stay as they are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};

use crate::process;
use crate::root::must_be_root;
use crate::target::Target;

/// Programs that something needs.
pub struct Needed {
    /// What needs them.
    by: &'static str,
    /// Words: a program, and behind a `:` the Debian package that brings it, unless that has the same name.
    programs: &'static str,
}

pub const SERVERS: Needed = Needed {
    by: "every test on a real server",
    // The last two check the unit, and test the web configuration.
    programs: "redis-server redis-cli:redis-tools redis-benchmark:redis-tools systemd-analyze:systemd curl",
};
pub const RULES: Needed = Needed { by: "checking the rules", programs: "promtool:prometheus prometheus" };
pub const COMPILERS: Needed = Needed {
    by: "planning for programs of both compilers, and holding the lifters against processors",
    // The last emulates the other processor.
    programs: "gcc clang qemu-aarch64:qemu-user",
};
pub const GO: Needed = Needed { by: "generating the dashboards and checking the Helm chart", programs: "go:golang-go" };
pub const PACKING: Needed = Needed {
    by: "packing",
    // The last five name the system calls of the unit, make the image, for which they get libraries, and build the
    // program that makes the manifests of the chart.
    programs: "dh:debhelper rpmbuild:rpm systemd-analyze:systemd podman runc mmdebstrap go:golang-go",
};
pub const PACKAGE: Needed = Needed { by: "trying the packages out", programs: "rpm podman runc mmdebstrap prometheus" };
pub const MATRIX: Needed = Needed {
    by: "trying other kernels and other builds of servers",
    programs: "qemu-system-x86_64:qemu-system-x86 qemu-system-aarch64:qemu-system-arm mmdebstrap cpio setpriv:util-linux \
               gdb-multiarch qemu-aarch64:qemu-user strip:binutils",
};
pub const CROSS: Needed = Needed {
    by: "building for another processor",
    // The compiler is in two packages.
    programs: "mmdebstrap aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc:libc6-dev-arm64-cross \
               readelf:binutils",
};
pub const FUZZING: Needed = Needed { by: "libFuzzer", programs: "cc:gcc c++:g++" };
pub const CONTAINERS: Needed = Needed {
    by: "trying servers in containers",
    // The last four build a server.
    programs: "podman runc nsenter:util-linux tar musl-gcc:musl-tools gcc pip3:python3-pip make",
};

/// Packages that start a service of the same name unless they are told not to.
const SERVICES: [&str; 2] = ["redis-server", "prometheus"];

/// A directory that exists while systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

impl Needed {
    fn absent(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let words = self.programs.split_whitespace().map(|word| word.split_once(':').unwrap_or((word, word)));
        words.filter(|(program, _)| which::which(program).is_err())
    }

    pub fn packages(&self) -> BTreeSet<String> {
        self.absent().map(|(_, package)| package.to_owned()).collect()
    }
}

pub fn installable() -> Result<()> {
    ensure!(which::which("apt-get").is_ok(), "there is no apt-get here (set-up knows Debian's packages only)");
    must_be_root("install packages")
}

/// Returns whether apt's present lists have a package of this name.
pub fn knows(package: &str) -> bool {
    process::answer_of(Command::new("apt-cache").args(["show", "--no-all-versions", package]))
        .is_ok_and(|answer| !answer.trim().is_empty())
}

/// Installs the needed programs that are absent, all at once. If it may not, it prints what cannot be done without
/// them.
pub fn provide(all: &[&Needed]) -> Result<()> {
    let packages: BTreeSet<String> = all.iter().flat_map(|needed| needed.packages()).collect();
    if packages.is_empty() {
        return Ok(());
    }
    if let Err(reason) = installable() {
        for needed in all {
            let packages = Vec::from_iter(needed.packages()).join(" and ");
            if !packages.is_empty() {
                println!("  {} needs {packages}: {reason:#}", needed.by);
            }
        }
        return Ok(());
    }
    install(&Vec::from_iter(packages))
}

/// Does the same, and fails if a needed program is still absent.
pub fn require(all: &[&Needed]) -> Result<()> {
    provide(all)?;
    all.iter().find_map(|needed| missing(needed)).map_or(Ok(()), |reason| bail!(reason))
}

/// Returns what to install first, if one of the needed programs is absent.
pub fn missing(needed: &Needed) -> Option<String> {
    let (program, package) = needed.absent().next()?;
    Some(format!("there is no {program} on PATH: on Debian, the package {package} brings it"))
}

/// Returns the commands that install these packages, as one would type them.
pub fn install_commands(packages: &[String]) -> [Command; 2] {
    let mut update = Command::new("apt-get");
    update.arg("update");
    let mut install = Command::new("apt-get");
    install.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    [update, install]
}

/// Updates apt's lists, the first time, and installs these packages, without questions and without recommended
/// packages. Keeps their services from running here, because the tests start servers of their own.
pub fn install(packages: &[String]) -> Result<()> {
    let services = || SERVICES.into_iter().filter(|service| packages.iter().any(|package| package == service));
    for service in services() {
        // A masked service is not started at the next boot either.
        if Path::new(SYSTEMD).exists() {
            println!(
                "  masking {service}.service, so that the package does not start it here \
                 (to have it: systemctl unmask {service}.service)"
            );
            process::answer_of(Command::new("systemctl").args(["mask", service]))
                .with_context(|| format!("cannot mask {service}.service"))?;
        }
    }
    static UPDATED: AtomicBool = AtomicBool::new(false);
    let [update, install] = install_commands(packages);
    for mut command in (!UPDATED.swap(true, Ordering::Relaxed)).then_some(update).into_iter().chain([install]) {
        println!("  running: {}", process::display(&command));
        command
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Waits for another apt (unattended-upgrades, say), but not forever.
            .args(["-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]);
        process::succeed(&mut command)?;
    }
    for service in services() {
        process::answer_of(Command::new("service").args([service, "stop"]))
            .with_context(|| format!("the package {service} may have started a service: stop it"))?;
    }
    Ok(())
}

const MIRROR: &str = "http://deb.debian.org/debian";
/// Where the suites of security updates are, whose names end with this.
const SECURITY: &str = "-security";

/// A suite, and the one that it adds to if it is not complete in itself.
#[derive(Clone, Copy)]
pub struct Suite(pub &'static str, pub Option<&'static str>);

/// Returns this root directory with these packages of a suite for a processor and all that they need, of which nothing
/// has been run.
pub fn unpacked(root: PathBuf, suite: Suite, target: Target, packages: &[&str]) -> Result<PathBuf> {
    let options = [format!("--architectures={}", target.debian()), format!("--include={}", packages.join(","))];
    made(root, suite, &["--variant=extract", &options[0], &options[1]])
}

/// Returns this directory with what one package of a suite has, and nothing that it needs.
pub fn alone(root: PathBuf, suite: Suite, target: Target, package: &str) -> Result<PathBuf> {
    let processor = format!("--architectures={}", target.debian());
    let download = format!("APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get download {package}/{}", suite.0);
    let hook = format!("--extract-hook=cd \"$1\" && {download} && dpkg-deb --extract {package}_*.deb .");
    made(root, suite, &["--variant=extract", &processor, &hook])
}

/// Returns the version of a package that is in a root directory.
pub fn version_in(root: &Path, package: &str) -> Result<String> {
    let changelog = root.join("usr/share/doc").join(package).join("changelog.Debian.gz");
    let changes = process::answer_of(Command::new("gzip").args(["--decompress", "--stdout"]).arg(changelog))?;
    let version = changes.split(['(', ')']).nth(1);
    Ok(version.with_context(|| format!("the changelog of {package} has no version"))?.to_owned())
}

/// Returns this root directory, or archive of one, as mmdebstrap makes it of a suite with these options. Downloads it
/// if it is not there: remove it to get the suite's newest.
pub fn made(root: PathBuf, Suite(suite, base): Suite, options: &[&str]) -> Result<PathBuf> {
    if root.exists() {
        return Ok(root);
    }
    let part = root.with_file_name(format!("part-{}", root.file_name().unwrap_or_default().display()));
    if part.is_dir() {
        fs::remove_dir_all(&part).with_context(|| format!("cannot remove {}", part.display()))?;
    }
    // Quiet, because the test command runs this beside other steps.
    let mut mmdebstrap = Command::new("mmdebstrap");
    // The archive that a machine reaches may be a snapshot: signed, but out of date.
    mmdebstrap.args(["--quiet", "--aptopt=Acquire::Check-Valid-Until \"false\""]).args(options);
    mmdebstrap.arg(base.unwrap_or(suite)).arg(&part);
    if let Some(base) = base {
        let of = |suite: &str| if suite.ends_with(SECURITY) { SECURITY } else { "" };
        mmdebstrap.args([base, suite].map(|suite| format!("deb {MIRROR}{} {suite} main", of(suite))));
    }
    process::answer_of(&mut mmdebstrap).with_context(|| format!("cannot make {} of {suite}", root.display()))?;
    fs::rename(&part, &root).with_context(|| format!("cannot keep {}", root.display()))?;
    Ok(root)
}
