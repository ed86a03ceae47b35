//! From the package to the alert: installs the .deb in a clean root, checks every file, starts the installed agent as its
//! unit's user while evictions stall a server, runs the queries of the installed dashboards and rules in a Prometheus, and
//! purges the package. Before that come the image, and the .rpm in the same root, each with a short look at one server.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::agent::Agent;
use evictscope_testkit::port::free_port;
use evictscope_testkit::redis::Redis;
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::service::Installed;
use evictscope_testkit::text::seconds;
use evictscope_testkit::workspace;

use super::format::{Format, Root};
use super::{Packages, contained};
use crate::dashboards;

/// Files of every installation.
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
    (
        "docs/runbooks",
        "md",
        "/usr/share/doc/evictscope/docs/runbooks",
    ),
];

/// Keys that are written to a server of 64 MB while a packed agent watches: more than it can keep.
const KEYS: u32 = 150_000;

/// Runs all of it. Call it in a process of its own, like [`dashboards::prove`].
pub fn run(packages: &Packages) -> Result<()> {
    must_be_root("install a package and attach BPF programs")?;
    let root = Root::take()?;
    let left = || format!("{} is left as it was", root.path().display());
    with_image(&packages.image)?;
    with_rpm(&packages.rpm, &root).with_context(left)?;
    with_deb(&packages.deb, &root).with_context(left)?;
    root.remove()
}

fn with_image(image: &Path) -> Result<()> {
    let begun = Instant::now();
    contained::try_out(image)?;
    println!(
        "the agent of the image counts what a server evicts, and names each option that it lacks ({})",
        seconds(begun.elapsed())
    );
    Ok(())
}

fn with_deb(deb: &Path, root: &Root) -> Result<()> {
    let before = root.traces()?;
    install(Format::Deb, deb, root)?;
    println!("{}", root.run("evictscope", &["check"])?);
    let installed = Installed::at(root.path())?;
    dashboards::prove(&installed)?;
    installed.wait_for_end()?;

    let begun = Instant::now();
    Format::Deb.remove(root)?;
    root.traces()?.must_be_as(&before)?;
    println!("purged without a trace ({})", seconds(begun.elapsed()));
    Ok(())
}

/// Tries out the .rpm. It leaves some files for the administrator to remove, which is done here.
fn with_rpm(rpm: &Path, root: &Root) -> Result<()> {
    let before = root.traces()?;
    install(Format::Rpm, rpm, root)?;
    let installed = Installed::at(root.path())?;
    let begun = Instant::now();
    let agent = Agent::start_command(installed.start(&[]), free_port()?, &[])?;
    installed.must_be(agent.pid())?;
    counts_evictions(&agent)?;
    drop(agent);
    installed.wait_for_end()?;
    println!(
        "the agent of the .rpm counts what a server evicts ({})",
        seconds(begun.elapsed())
    );

    let begun = Instant::now();
    let own = root.path().join("etc/evictscope/own.pem");
    fs::write(&own, "the administrator's")?;
    Format::Rpm.remove(root)?;
    ensure!(
        own.exists(),
        "erasing the .rpm removes a file that is not its own"
    );
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
    root.traces()?.must_be_as(&before)?;
    println!(
        "erased; its user, its records and the administrator's files were left, and nothing else ({})",
        seconds(begun.elapsed())
    );
    Ok(())
}

/// Starts a server that evicts, and fails if the agent counts other evictions than the server.
pub fn counts_evictions(agent: &Agent) -> Result<()> {
    let redis = Redis::start(&[])?;
    agent.watches(&redis)?;
    redis.write_keys(KEYS)?;
    let evicted = redis.info("evicted_keys")?;
    ensure!(evicted > 0.0, "the server did not evict");
    let reading = agent.settled_reading(&redis)?;
    let counted = reading.sum("evictscope_evicted_keys_total", &[]);
    let counted = counted.with_context(|| agent.log().unwrap_or_default())?;
    ensure!(
        counted == evicted,
        "the server evicted {evicted} keys, and the agent says {counted}"
    );
    let calls = [("kind", "evicting")];
    let calls = reading.sum("evictscope_eviction_calls_total", &calls)?;
    ensure!(calls > 0.0, "the agent saw no evicting call");
    Ok(())
}

/// Installs a package, and checks that every file is there and as packed, and that the program works.
fn install(format: Format, package: &Path, root: &Root) -> Result<()> {
    let begun = Instant::now();
    format.install(package, root)?;
    let installed = format.files(root)?;
    let mut expected: Vec<_> = FILES.map(str::to_owned).into();
    for (directory, ending, to) in SHIPPED {
        for file in workspace::files_ending(&workspace::root().join(directory), ending)? {
            expected.push(format!("{to}/{}", super::name(&file)?));
        }
    }
    for file in expected {
        let file = format.place_of(file);
        ensure!(
            installed.contains(&file),
            "no {file} in it:\n{}",
            installed.join("\n")
        );
    }
    for file in installed {
        let there = fs::symlink_metadata(root.path().join(file.trim_start_matches('/')));
        ensure!(there.is_ok(), "{file} was not installed");
    }
    format.verify(root)?;
    root.run("getent", &["passwd", "evictscope"])?;
    root.run("evictscope", &["run", "--check-config"])?;
    println!(
        "{} installed in a clean root, with every file as packed ({})",
        super::name(package)?,
        seconds(begun.elapsed())
    );
    Ok(())
}
