//! Installs the .deb in a clean root, looks at it, and purges it again.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{process, workspace};

/// What a clean root is made of: Debian's smallest, and what the package depends on.
const ROOT: [&str; 3] = ["--variant=minbase", "--include=adduser", "bookworm"];

/// Enters a root: /proc, /sys and /dev are this machine's, until the command ends.
const ENTER: &str = r#"
set -e
for shared in proc sys dev; do mount --rbind "/$shared" "$1/$shared"; done
exec chroot "$@"
"#;

/// What every installation has to have.
const FILES: [&str; 8] = [
    "/usr/bin/evictscope",
    "/etc/evictscope/config.toml",
    "/usr/lib/systemd/system/evictscope.service",
    "/usr/share/man/man1/evictscope.1.gz",
    "/usr/share/man/man1/evictscope-run.1.gz",
    "/usr/share/bash-completion/completions/evictscope",
    "/usr/share/zsh/vendor-completions/_evictscope",
    "/usr/share/fish/vendor_completions.d/evictscope.fish",
];

/// Directories of this repository, the ending of those of their files that are installed, and where.
const SHIPPED: [(&str, &str, &str); 3] = [
    ("dashboards", "json", "/usr/share/evictscope/dashboards"),
    ("dashboards/rules", "yaml", "/usr/share/evictscope/rules"),
    (
        "docs/runbooks",
        "md",
        "/usr/share/doc/evictscope/docs/runbooks",
    ),
];

/// What is not on disk, and where installing leaves traces by Debian's own rules: the state of
/// packages, logs, caches, and the
/// copies that are kept of the lists of users.
const NOT_COUNTED: [&str; 9] = [
    "./proc",
    "./run",
    "./sys",
    "./dev",
    "./var/lib/dpkg",
    "./var/log",
    "./var/cache",
    "./etc/passwd-",
    "./etc/.pwd.lock",
];

/// Installs, checks and purges the package.
pub fn try_out(deb: &Path) -> Result<()> {
    let root = clean_root()?;
    let before = Traces::of(&root)?;
    fs::copy(deb, root.join("package.deb")).context("cannot copy the package")?;
    inside(&root, &["dpkg", "--install", "/package.deb"])?;
    fs::remove_file(root.join("package.deb"))?;

    let installed = inside(&root, &["dpkg", "--listfiles", "evictscope"])?;
    let mut expected: Vec<_> = FILES.map(str::to_owned).into();
    for (directory, ending, to) in SHIPPED {
        for file in workspace::files_ending(&workspace::root().join(directory), ending)? {
            expected.push(format!("{to}/{}", super::name(&file)?));
        }
    }
    for file in expected {
        ensure!(
            installed.lines().any(|line| line == file),
            "no {file} in it:\n{installed}"
        );
    }
    for file in installed.lines().filter(|line| line.starts_with('/')) {
        let there = fs::symlink_metadata(root.join(file.trim_start_matches('/')));
        ensure!(there.is_ok(), "{file} was not installed");
    }
    let changed = inside(&root, &["dpkg", "--verify", "evictscope"])?;
    ensure!(
        changed.is_empty(),
        "installed, but not as packed:\n{changed}"
    );
    inside(&root, &["getent", "passwd", "evictscope"])?;
    inside(&root, &["evictscope", "run", "--check-config"])?;
    let check = inside(&root, &["evictscope", "check"])?;
    println!("{check}");

    inside(&root, &["dpkg", "--purge", "evictscope"])?;
    let after = Traces::of(&root)?;
    let left: Vec<_> = after.files.difference(&before.files).collect();
    ensure!(left.is_empty(), "purging leaves {left:?}");
    ensure!(
        after.users == before.users,
        "purging leaves its user or group"
    );
    fs::remove_dir_all(root).context("cannot remove the root again")?;
    println!("installed in a clean root, checked, and purged without a trace");
    Ok(())
}

/// A fresh root. What it is unpacked from is made once.
fn clean_root() -> Result<PathBuf> {
    let target = workspace::target_directory()?;
    let (packed, root) = (target.join("clean-root.tar"), target.join("clean-root"));
    if !packed.exists() {
        let made = target.join("clean-root.part.tar");
        super::succeed(
            Command::new("mmdebstrap")
                .arg("--quiet")
                .args(ROOT)
                .arg(&made),
        )
        .context("cannot make a clean root; `apt-get install mmdebstrap`")?;
        fs::rename(made, &packed)?;
    }
    if root.exists() {
        fs::remove_dir_all(&root).context("cannot remove the previous root")?;
    }
    fs::create_dir(&root)?;
    super::succeed(
        Command::new("tar")
            .args(["--extract", "--numeric-owner", "--file"])
            .arg(&packed)
            .arg("--directory")
            .arg(&root),
    )?;
    Ok(root)
}

/// Runs a command in the root; its output.
fn inside(root: &Path, command: &[&str]) -> Result<String> {
    process::answer_of(
        Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                ENTER,
                "sh",
            ])
            .arg(root)
            .args(command)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

/// What a package could leave behind.
struct Traces {
    files: BTreeSet<String>,
    /// /etc/passwd and /etc/group.
    users: [String; 2],
}

impl Traces {
    fn of(root: &Path) -> Result<Self> {
        let found = process::answer_of(Command::new("find").current_dir(root).arg("."))?;
        let counted = |line: &&str| {
            !NOT_COUNTED.iter().any(|path| line.starts_with(path))
                && !line.ends_with("/group-")
                && !line.ends_with("shadow-")
        };
        let users = ["passwd", "group"].map(|name| fs::read_to_string(root.join("etc").join(name)));
        let [passwd, group] = users;
        Ok(Self {
            files: found.lines().filter(counted).map(str::to_owned).collect(),
            users: [passwd?, group?],
        })
    }
}
