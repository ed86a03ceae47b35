//! The OCI image: one layer with the agent of the .deb, the libraries that it needs, and nothing to run beside it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::process;
use serde_json::{Value, json};

use super::commit::Commit;
use super::sbom::{Library, packages};

/// What `podman load` calls it, with the version after a colon.
const NAME: &str = "localhost/evictscope";

/// The agent, in the .deb as in the image.
pub const PROGRAM: &str = "usr/bin/evictscope";

const STATE: &str = "/var/lib/evictscope";

/// Directories that are empty in it: for the records, for a configuration, and where the runtime mounts its own, even
/// on a read-only root.
const DIRECTORIES: [&str; 5] = ["var/lib/evictscope", "etc/evictscope", "proc", "sys", "dev"];

/// Makes the image from the files of the .deb, as an archive that `podman load`, `docker load` and `skopeo` take.
/// `work` is a directory that is removed later.
pub fn make(archive: &Path, files: &Path, libraries: &[Library], commit: &Commit, work: &Path) -> Result<()> {
    let root = work.join("root");
    fill(&root, files, libraries).context("cannot lay out the image")?;
    set_times_and_modes(&root, commit)?;

    let layout = work.join("oci");
    let version = env!("CARGO_PKG_VERSION");
    let image = format!("{}:{NAME}:{version}", layout.display());
    let created = commit.time.to_string();
    umoci(&["init", "--layout"], &[&layout.display().to_string()])?;
    umoci(&["new", "--image"], &[&image])?;
    umoci(
        &["insert", "--rootless", "--history.created", &created],
        &["--history.created_by", "cargo xtask package", "--image", &image, &root.display().to_string(), "/"],
    )?;
    let mut labels = vec![
        ("title", "evictscope"),
        ("description", "Eviction metrics of the Redis servers on a host"),
        ("version", version),
        ("created", &created),
        ("licenses", "MIT OR Apache-2.0"),
    ];
    labels.extend(commit.name.as_deref().map(|name| ("revision", name)));
    let label = |(label, value): &(&str, &str)| format!("--config.label=org.opencontainers.image.{label}={value}");
    let labels: Vec<String> = labels.iter().map(label).collect();
    let (entry, state, made) =
        (format!("--config.entrypoint=/{PROGRAM}"), format!("--config.volume={STATE}"), format!("--created={created}"));
    let mut settings = vec!["--config.user=0:0", "--config.env=PATH=/usr/bin", &entry, "--config.cmd=run", &state];
    settings.extend(["--architecture=amd64", "--os=linux", &made]);
    settings.extend(labels.iter().map(String::as_str));
    umoci(&["config", "--no-history", "--image", &image], &settings)?;
    umoci(&["gc", "--layout"], &[&layout.display().to_string()])?;
    name_for_docker(&layout, version)?;
    process::succeed(
        super::tar(commit).args(["--create", "--file"]).arg(archive).arg("--directory").arg(&layout).arg("."),
    )
}

/// Adds the list of images that `docker load` looks for: before its containerd store, it took no OCI layout alone.
fn name_for_docker(layout: &Path, version: &str) -> Result<()> {
    let read = |path: &str| -> Result<Value> {
        let text = fs::read(layout.join(path)).with_context(|| format!("umoci has left no {path}"))?;
        Ok(serde_json::from_slice(&text)?)
    };
    let blob = |described: &Value| -> Result<String> {
        let digest = described["digest"].as_str().context("umoci names no digest")?;
        Ok(format!("blobs/{}", digest.replace(':', "/")))
    };
    let manifest = read(&blob(&read("index.json")?["manifests"][0])?)?;
    let layers = manifest["layers"].as_array().context("the image has no layers")?;
    let images = json!([{
        "Config": blob(&manifest["config"])?,
        "RepoTags": [format!("{NAME}:{version}")],
        "Layers": layers.iter().map(blob).collect::<Result<Vec<_>>>()?,
    }]);
    fs::write(layout.join("manifest.json"), images.to_string()).context("cannot name the image")
}

fn fill(root: &Path, files: &Path, libraries: &[Library]) -> Result<()> {
    for directory in DIRECTORIES {
        fs::create_dir_all(root.join(directory))?;
    }
    let copyright = |package: &str| format!("usr/share/doc/{package}/copyright");
    copy(files, PROGRAM, root)?;
    copy(files, copyright("evictscope"), root)?;
    let here = Path::new("/");
    for library in libraries {
        copy(here, library.path.strip_prefix(here)?, root)?;
    }
    for package in packages(libraries) {
        copy(here, copyright(&package.name), root)?;
    }
    Ok(())
}

fn copy(from: &Path, name: impl AsRef<Path>, to: &Path) -> Result<()> {
    let (from, to) = (from.join(&name), to.join(&name));
    fs::create_dir_all(to.parent().unwrap_or(&to))?;
    fs::copy(&from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// Gives every file the time of the commit, and modes that do not depend on who packs it.
fn set_times_and_modes(root: &Path, commit: &Commit) -> Result<()> {
    process::answer_of(Command::new("chmod").args(["--recursive", "u=rwX,go=rX"]).arg(root))?;
    let time = format!("--date=@{}", commit.time.as_second());
    process::answer_of(Command::new("find").arg(root).args(["-exec", "touch", &time, "{}", "+"])).map(drop)
}

fn umoci(first: &[&str], then: &[&str]) -> Result<()> {
    process::answer_of(Command::new("umoci").args(first).args(then)).map(drop)
}
