//! The container image: one layer with the agent of the .deb, the libraries that it needs, and nothing to run beside
//! it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{podman, process, workspace};

use super::commit::Commit;

const NAME: &str = concat!("localhost/evictscope:", env!("CARGO_PKG_VERSION"));

/// The agent, in the .deb as in the image.
const PROGRAM: &str = "usr/bin/evictscope";

/// Directories that are empty in it: for the records, for a configuration, and where the runtime mounts its own, even
/// on a read-only root.
const DIRECTORIES: [&str; 5] = ["var/lib/evictscope", "etc/evictscope", "proc", "sys", "dev"];

/// Makes the image from the files of the .deb, as an archive that `podman load`, `docker load` and `skopeo` take.
/// `work` is a directory that is removed later.
pub fn make(archive: &Path, files: &Path, commit: &Commit, work: &Path) -> Result<()> {
    let context = work.join("image");
    fill(&context.join("root"), files).context("cannot lay out the image")?;
    // Modes that do not depend on who packs it.
    process::answer_of(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(&context))?;
    let created = commit.time.to_string();
    let mut labels = vec![
        ("title", "evictscope"),
        ("description", "Eviction metrics of the Redis servers on a host"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("created", &created),
        ("licenses", "MIT OR Apache-2.0"),
    ];
    labels.extend(commit.name.as_deref().map(|name| ("revision", name)));
    let mut build = podman::command()?;
    build.args(["build", "--quiet", "--no-cache", "--layers=false", "--tag", NAME, "--file"]);
    build.arg(workspace::root().join("packaging/Containerfile"));
    build.arg(format!("--timestamp={}", commit.time.as_second()));
    build.args(labels.iter().map(|(label, value)| format!("--label=org.opencontainers.image.{label}={value}")));
    process::answer_of(build.arg(context))?;
    process::answer_of(podman::command()?.args(["save", "--quiet", "--output"]).arg(archive).arg(NAME))?;
    process::answer_of(podman::command()?.args(["rmi", "--force", NAME])).map(drop)
}

fn fill(root: &Path, files: &Path) -> Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    let copyright = |package: &str| format!("usr/share/doc/{package}/copyright");
    copy(files, PROGRAM, root)?;
    copy(files, copyright("evictscope"), root)?;
    let here = Path::new("/");
    // All that it needs to start, including what its libraries need.
    for library in podman::libraries_of(&files.join(PROGRAM))? {
        copy(here, library.strip_prefix(here)?, root)?;
        copy(here, copyright(&package_of(&library)?), root)?;
    }
    Ok(())
}

fn copy(from: &Path, name: impl AsRef<Path>, to: &Path) -> Result<()> {
    let (from, to) = (from.join(&name), to.join(&name));
    fs::create_dir_all(to.parent().unwrap_or(&to))?;
    fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Returns the Debian package of a file.
pub fn package_of(file: &Path) -> Result<String> {
    // Debian is moving /lib to /usr/lib, where its list of files then names them.
    let moved = Path::new("/usr").join(file.strip_prefix("/")?);
    let search = |file: &Path| process::answer_of(Command::new("dpkg-query").arg("--search").arg(file));
    let why = || format!("cannot tell which Debian package {} is from: make packages on Debian", file.display());
    let answer = search(file).or_else(|_| search(&moved)).with_context(why)?;
    // As in `libc6:amd64: /lib64/ld-linux-x86-64.so.2`.
    let mut owners = answer.lines().filter(|line| !line.starts_with("diversion by"));
    let owner = owners.find_map(|line| line.split(':').next()).context("no package has it")?;
    Ok(owner.to_owned())
}
