//! The container image: for each processor, one layer with the agent of the .deb, the libraries that it needs, and
//! nothing to run beside it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::libraries::in_root;
use evictscope_testkit::target::Target;
use evictscope_testkit::{podman, process, workspace};

use super::commit::{Commit, tar};
use super::libraries;

const NAME: &str = concat!("localhost/evictscope:", env!("CARGO_PKG_VERSION"));

/// The agent, in the .deb as in the image.
const PROGRAM: &str = "usr/bin/evictscope";

/// Directories that are empty in it: for the records, for a configuration, and where the runtime mounts its own, even
/// on a read-only root.
const DIRECTORIES: [&str; 5] = ["var/lib/evictscope", "etc/evictscope", "proc", "sys", "dev"];

/// Adds the image of a processor, from the files of its .deb, to an index of images. `work` is a directory that is
/// removed later.
pub fn add(files: &Path, target: Target, commit: &Commit, work: &Path) -> Result<()> {
    let context = work.join(format!("image-{}", target.name()));
    fill(&context.join("root"), files, target).context("cannot lay out the image")?;
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
    build.args(["build", "--quiet", "--no-cache", "--layers=false", "--manifest", NAME, "--file"]);
    build.arg(workspace::root().join("packaging/Containerfile"));
    build.arg(format!("--platform=linux/{}", target.debian()));
    build.arg(format!("--timestamp={}", commit.time.as_second()));
    build.args(labels.iter().map(|(label, value)| format!("--label=org.opencontainers.image.{label}={value}")));
    process::answer_of(build.arg(context)).map(drop)
}

/// Saves the index with the images of all processors as an archive that podman and skopeo take, and removes it.
pub fn save(archive: &Path, commit: &Commit, work: &Path) -> Result<()> {
    let layout = work.join("index");
    let to = format!("oci:{}:{NAME}", layout.display());
    process::answer_of(podman::command()?.args(["manifest", "push", "--all", "--quiet", NAME, &to]))?;
    process::answer_of(podman::command()?.args(["manifest", "rm", NAME]))?;
    process::answer_of(podman::command()?.args(["image", "prune", "--force"]))?;
    process::succeed(tar(commit).args(["--create", "--file"]).arg(archive).arg("--directory").arg(layout).arg("."))
}

fn fill(root: &Path, files: &Path, target: Target) -> Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    let copyright = |package: &str| format!("usr/share/doc/{package}/copyright");
    copy(files, PROGRAM, root)?;
    copy(files, copyright("evictscope"), root)?;
    let packages = libraries::root(target)?;
    for package in libraries::PACKAGES {
        copy(&packages, copyright(package), root)?;
    }
    // All that it needs to start, including what its libraries need. The kernel looks for the loader in one place.
    let loader = match target {
        Target::X86_64 => "lib64/ld-linux-x86-64.so.2",
        Target::Aarch64 => "lib/ld-linux-aarch64.so.1",
    };
    for library in in_root(&packages, &files.join(PROGRAM))? {
        let is_loader = library.file_name() == Path::new(loader).file_name();
        let to = if is_loader { Path::new(loader) } else { library.strip_prefix(&packages)? };
        fs::create_dir_all(root.join(to).parent().unwrap_or(root))?;
        fs::copy(&library, root.join(to)).with_context(|| format!("cannot copy {}", library.display()))?;
    }
    Ok(())
}

fn copy(from: &Path, name: impl AsRef<Path>, to: &Path) -> Result<()> {
    let (from, to) = (from.join(&name), to.join(&name));
    fs::create_dir_all(to.parent().unwrap_or(&to))?;
    fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}
