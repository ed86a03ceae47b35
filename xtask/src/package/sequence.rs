//! From the package to the alert: installs the .deb in a clean root, checks every file, starts the installed agent as
//! its unit's user while evictions stall a server, runs the queries of the installed dashboards and rules in a
//! Prometheus, and purges the package. Before that come the image, and the .rpm in the same root, each with a short
//! look at one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::loopback::free_port;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::service::Installed;
use evictscope_testkit::target::Target;
use evictscope_testkit::{podman, process, workspace};

use super::format::{Format, Root};
use super::seccomp;
use crate::dashboards;

const FILES: [&str; 10] = [
    "/usr/bin/evictscope",
    "/etc/evictscope/config.toml",
    "/usr/lib/systemd/system/evictscope.service",
    "/usr/share/evictscope/older-kernels.conf",
    "/usr/share/evictscope/seccomp.json",
    "/usr/share/man/man1/evictscope.1.gz",
    "/usr/share/man/man1/evictscope-run.1.gz",
    "/usr/share/bash-completion/completions/evictscope",
    "/usr/share/zsh/vendor-completions/_evictscope",
    "/usr/share/fish/vendor_completions.d/evictscope.fish",
];

/// Folders of this repository, the extension of their files that are installed, and where to.
const SHIPPED: [(&str, &str, &str); 3] = [
    ("dashboards", "json", "/usr/share/evictscope/dashboards"),
    ("dashboards/rules", "yaml", "/usr/share/evictscope/rules"),
    ("docs/runbooks", "md", "/usr/share/doc/evictscope/docs/runbooks"),
];

/// Keys that are written to a server of 64 MB while a packed agent watches: more than it can keep.
const KEYS: u32 = 150_000;

/// The packages of a processor, and the image of all.
pub struct Packages {
    pub deb: PathBuf,
    pub rpm: PathBuf,
    pub image: PathBuf,
}

impl Packages {
    pub fn of(target: Target, directory: &Path) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self {
            deb: directory.join(format!("evictscope_{version}-1_{}.deb", target.debian())),
            rpm: directory.join(format!("evictscope-{version}-1.{}.rpm", target.name())),
            image: directory.join(format!("evictscope-{version}.image.tar")),
        }
    }
}

/// Runs all of it. Call it in a process of its own, like [`dashboards::prove`].
pub fn run(packages: &Packages) -> Result<()> {
    must_be_root("install a package and attach BPF programs")?;
    let root = Root::take()?;
    let left = || format!("{} is left as it was", root.path().display());
    try_out(&packages.image)?;
    println!("the agent of the image counts what a server evicts, and names each option that it lacks");
    with_rpm(&packages.rpm, &root).with_context(left)?;
    with_deb(&packages.deb, &root).with_context(left)?;
    root.remove()
}

fn with_deb(deb: &Path, root: &Root) -> Result<()> {
    let before = root.traces()?;
    install(Format::Deb, deb, root)?;
    println!("{}", root.run("evictscope", &["check"])?);
    let installed = Installed::at(root.path())?;
    dashboards::prove(&installed)?;
    installed.wait_for_end()?;

    Format::Deb.remove(root)?;
    root.must_be_as(&before)?;
    println!("purged without a trace");
    Ok(())
}

/// Tries out the .rpm. It leaves some files for the administrator to remove, which is done here.
fn with_rpm(rpm: &Path, root: &Root) -> Result<()> {
    let before = root.traces()?;
    install(Format::Rpm, rpm, root)?;
    let installed = Installed::at(root.path())?;
    let agent = Agent::start_command(installed.start(&[]), free_port()?, &[])?;
    installed.must_be(agent.pid())?;
    counts_evictions(&agent)?;
    drop(agent);
    installed.wait_for_end()?;
    println!("the agent of the .rpm counts what a server evicts");

    let own = root.path().join("etc/evictscope/own.pem");
    fs::write(&own, "the administrator's")?;
    Format::Rpm.remove(root)?;
    ensure!(own.exists(), "erasing the .rpm removes a file that is not its own");
    for command in [
        ["rm", "--recursive", "/etc/evictscope"],
        ["rm", "--recursive", "/var/lib/evictscope"],
        // These belong to the shells. Without the shells, nothing owns them, and rpm leaves them.
        ["rm", "--recursive", "/usr/share/zsh"],
        ["rm", "--recursive", "/usr/share/fish"],
        ["userdel", "--", "evictscope"],
    ] {
        root.run(command[0], &command[1..])?;
    }
    root.must_be_as(&before)?;
    println!("erased; its user, its records and the administrator's files were left, and nothing else");
    Ok(())
}

fn counts_evictions(agent: &Agent) -> Result<()> {
    let redis = Redis::start(&[])?;
    agent.watches(&redis)?;
    redis.write_keys(KEYS)?;
    let evicted = redis.info("evicted_keys")?;
    ensure!(evicted > 0.0, "the server did not evict");
    let reading = agent.settled_reading(&redis)?;
    let counted = reading.sum("evictscope_evicted_keys_total", &[]);
    let counted = counted.with_context(|| agent.log().unwrap_or_default())?;
    ensure!(counted == evicted, "the server evicted {evicted} keys, and the agent says {counted}");
    let calls = reading.sum("evictscope_eviction_calls_total", &[("kind", "evicting")])?;
    ensure!(calls > 0.0, "the agent saw no evicting call");
    Ok(())
}

/// Installs a package, and checks that every file is there and as packed, and that the program works.
fn install(format: Format, package: &Path, root: &Root) -> Result<()> {
    format.install(package, root)?;
    let installed = format.files(root)?;
    let mut expected: Vec<_> = FILES.map(str::to_owned).into();
    for (directory, ending, to) in SHIPPED {
        let folder = workspace::root().join(directory);
        for file in workspace::files_ending(&folder, ending)? {
            expected.push(format!("{to}/{}", file.strip_prefix(&folder)?.display()));
        }
    }
    for file in expected {
        let file = format.place_of(file);
        ensure!(installed.contains(&file), "no {file} in it:\n{}", installed.join("\n"));
    }
    for file in installed {
        let there = fs::symlink_metadata(root.path().join(file.trim_start_matches('/')));
        ensure!(there.is_ok(), "{file} was not installed");
    }
    format.verify(root)?;
    root.run("getent", &["passwd", "evictscope"])?;
    root.run("evictscope", &["run", "--check-config"])?;
    println!("{} installed in a clean root, with every file as packed", package.display());
    Ok(())
}

const PAGE: &str = "docs/CONFIGURATION.md";
const BEGINNING: &str = "podman run --detach";

const OWN: [&str; 3] = ["--name ", "--restart=", "--volume "];
const FILTER: &str = "--security-opt seccomp=";

/// What `check` says without the options that begin like this, or with others in their place.
const MISSING: [(&str, &str, &str); 4] = [
    ("--pid=", "", "add --pid=host (podman, Docker)"),
    ("--cap-add=PERFMON", "", "add --cap-add=PERFMON (podman, Docker)"),
    (FILTER, "", "add --security-opt seccomp=/usr/share/evictscope/seccomp.json (podman, Docker"),
    ("--pid=", "--pid=host --uidmap=0:200000:65536 --gidmap=0:200000:65536", "in a user namespace"),
];

fn try_out(archive: &Path) -> Result<()> {
    let mut load = podman::command()?;
    let said = process::answer_of(load.args(["load", "--quiet", "--input"]).arg(archive))?;
    let loaded = said.split_whitespace().last().context("podman does not say what it has loaded")?;
    let page = fs::read_to_string(workspace::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    let (mut options, image) = printed(&page)?;
    ensure!(image == loaded, "{PAGE} runs {image}, and the image is {loaded}");
    let filter = tempfile::NamedTempFile::new()?;
    seccomp::write(filter.path())?;
    for option in options.iter_mut().filter(|option| option.starts_with(FILTER)) {
        *option = format!("{FILTER}{}", filter.path().display());
    }

    let all = check(&image, &options)?;
    let said = String::from_utf8_lossy(&all.stdout);
    ensure!(all.status.success(), "check fails in a container with all options:\n{said}");
    for (option, instead, message) in MISSING {
        let mut others = options.clone();
        others.retain(|given| !given.starts_with(option));
        ensure!(others.len() < options.len(), "{PAGE} does not name {option}");
        others.push(instead.to_owned());
        let check = check(&image, &others)?;
        let said = String::from_utf8_lossy(&check.stdout);
        ensure!(
            !check.status.success() && said.contains(message),
            "with {instead:?} in place of {option}, check does not say {message:?}:\n{said}"
        );
    }
    let counted = counts(&image, &options);
    // And the container of it, if that still runs.
    process::answer_of(podman::command()?.args(["rmi", "--force", loaded]))?;
    counted
}

/// Returns the options of the command on the page that are not [`OWN`], each with its value, and the image.
fn printed(page: &str) -> Result<(Vec<String>, String)> {
    let absent = || format!("{PAGE} has no `{BEGINNING}`");
    let (_, command) = page.split_once(BEGINNING).with_context(absent)?;
    // It ends with the first line that is not continued.
    let command = command.replace("\\\n", " ");
    let mut options: Vec<String> = Vec::new();
    for word in command.lines().next().with_context(absent)?.split_whitespace() {
        match options.last_mut() {
            Some(last) if !word.starts_with('-') && !last.contains(['=', ' ']) => {
                *last += &format!(" {word}");
            }
            _ => options.push(word.to_owned()),
        }
    }
    let image = options.pop().with_context(absent)?;
    options.retain(|option| !OWN.iter().any(|own| option.starts_with(own)));
    Ok((options, image))
}

fn podman_run(options: &[String]) -> Result<Command> {
    let mut run = podman::command()?;
    run.arg("run").args(podman::LIMITS).args(options.iter().flat_map(|option| option.split_whitespace()));
    Ok(run)
}

fn check(image: &str, options: &[String]) -> Result<Output> {
    podman_run(options)?.arg("--rm").args([image, "check"]).output().context("cannot run podman")
}

fn counts(image: &str, options: &[String]) -> Result<()> {
    let mut agent = podman_run(options)?;
    agent.args(["--rm", image, "run"]);
    counts_evictions(&Agent::start_command(agent, free_port()?, &[])?)
}
