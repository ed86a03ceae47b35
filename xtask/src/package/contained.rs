//! The agent in a container: runs the image by podman as docs/CONTAINERS.md says, and without one option after the other.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{agent::Agent, podman, port::free_port, process, workspace};

use super::{seccomp, sequence::counts_evictions};

/// The page that tells operators how to run the image.
const PAGE: &str = "docs/CONTAINERS.md";

const PID: &str = "--pid=host";
const NETWORK: &str = "--network=host";
const CAPABILITIES: &str = "--cap-add=BPF,PERFMON,SYS_PTRACE,DAC_READ_SEARCH";
/// The filter of system calls; what follows is the path of the file.
const FILTER: &str = "--security-opt seccomp=";

/// The other options on that page that say what the agent may do.
const OTHERS: [&str; 4] = [
    "--cap-drop=all",
    "--security-opt no-new-privileges",
    "--read-only",
    "--ulimit nofile=8192",
];

/// What `check` says without an option, or with another in its place.
const MISSING: [(&str, &str, &str); 4] = [
    (PID, "", "add --pid=host (podman, Docker)"),
    (
        CAPABILITIES,
        "--cap-add=BPF",
        "in a container, add --cap-add=",
    ),
    (
        FILTER,
        "",
        "add --security-opt seccomp=/usr/share/evictscope/seccomp.json",
    ),
    (
        PID,
        "--pid=host --uidmap=0:200000:65536 --gidmap=0:200000:65536",
        "in a user namespace",
    ),
];

/// Tries an image out, which is in this archive.
pub fn try_out(archive: &Path) -> Result<()> {
    let page = fs::read_to_string(workspace::root().join(PAGE));
    let page = page.with_context(|| format!("cannot read {PAGE}"))?;
    for option in OTHERS
        .into_iter()
        .chain([PID, NETWORK, CAPABILITIES, FILTER])
    {
        ensure!(page.contains(option), "{PAGE} does not name {option}");
    }
    let filter = tempfile::NamedTempFile::new()?;
    seccomp::write(filter.path())?;
    let filter = format!("{FILTER}{}", filter.path().display());
    let options: Vec<&str> = OTHERS
        .into_iter()
        .chain([PID, NETWORK, CAPABILITIES, &filter])
        .collect();
    let image = load(archive)?;

    let check = check(&image, &options)?;
    let said = String::from_utf8_lossy(&check.stdout);
    ensure!(
        check.status.success(),
        "check fails in a container with all options:\n{said}"
    );
    for (option, instead, message) in MISSING {
        let replaced = options.iter().map(|given| match given.starts_with(option) {
            true => instead,
            false => given,
        });
        let options: Vec<_> = replaced.collect();
        let check = self::check(&image, &options)?;
        let said = String::from_utf8_lossy(&check.stdout);
        ensure!(
            !check.status.success() && said.contains(message),
            "with {instead:?} in the place of {option}, check does not say {message:?}:\n{said}"
        );
    }
    counts(&image, &options)
}

/// Loads the image, and returns its name.
fn load(archive: &Path) -> Result<String> {
    let said = process::answer_of(
        podman::command()?
            .args(["load", "--quiet", "--input"])
            .arg(archive),
    )?;
    let name = said.trim().rsplit(' ').next();
    Ok(name
        .context("podman does not say what it has loaded")?
        .to_owned())
}

/// Returns `podman run` with options of [`PAGE`], and what this machine asks for beside them.
fn run(options: &[&str]) -> Result<Command> {
    let mut run = podman::command()?;
    run.arg("run").args(podman::LIMITS);
    run.args(options.iter().flat_map(|option| option.split_whitespace()));
    Ok(run)
}

fn check(image: &str, options: &[&str]) -> Result<Output> {
    let mut check = run(options)?;
    check.arg("--rm").args([image, "check"]);
    check.output().context("cannot run podman")
}

/// Runs the agent on one server, and fails where it counts something else than that does.
fn counts(image: &str, options: &[&str]) -> Result<()> {
    let container = Named(format!("evictscope-{}", std::process::id()));
    let mut agent = run(options)?;
    agent.args([
        "--name",
        &container.0,
        "--volume",
        &format!("{}:/var/lib/evictscope", container.0),
    ]);
    agent.args([image, "run"]);
    counts_evictions(&Agent::start_command(agent, free_port()?, &[])?)
}

/// The container and the volume of this name, which are removed when this is dropped.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        for remove in [["rm", "--force", "--ignore"], ["volume", "rm", "--force"]] {
            let removed = podman::command()
                .and_then(|mut podman| process::answer_of(podman.args(remove).arg(&self.0)));
            if let Err(error) = removed {
                eprintln!("podman has not removed {}: {error:#}", self.0);
            }
        }
    }
}
