//! The .rpm: the files of the .deb, with scriptlets of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use evictscope_testkit::{process, workspace};
use serde::Serialize;

use super::{commit::Commit, tools};

/// Files that the distributions with .rpm packages keep elsewhere.
const MOVED: [(&str, &str); 1] = [(
    "/usr/share/zsh/vendor-completions/_evictscope",
    "/usr/share/zsh/site-functions/_evictscope",
)];

/// The part of cargo-generate-rpm's metadata that is not in `agent/Cargo.toml`.
#[derive(Serialize)]
struct Metadata {
    assets: Vec<Asset>,
}

#[derive(Serialize)]
struct Asset {
    source: PathBuf,
    dest: String,
    mode: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'static str>,
    doc: bool,
}

/// Makes the .rpm of the unpacked .deb.
pub fn make(directory: &Path, files: &Path, commit: &Commit, work: &Path) -> Result<PathBuf> {
    let mut assets = Vec::new();
    collect(files, files, &mut assets).context("cannot list the files of the .deb")?;
    let metadata = work.join("rpm.toml");
    fs::write(&metadata, toml::to_string(&Metadata { assets })?)
        .context("cannot write the list of files for the .rpm")?;
    let rpm = directory.join(format!(
        "evictscope-{}-1.x86_64.rpm",
        env!("CARGO_PKG_VERSION")
    ));
    process::answer_of(
        commit
            .reproducibly(tools::path(tools::RPM)?)
            .args(["generate-rpm", "--package", "agent"])
            // The same on every machine: what the executable's own list of libraries says.
            .args(["--auto-req", "builtin", "--metadata-overwrite"])
            .arg(&metadata)
            .arg("--output")
            .arg(&rpm),
    )
    .context("cargo-generate-rpm failed")?;
    Ok(rpm)
}

fn collect(directory: &Path, files: &Path, assets: &mut Vec<Asset>) -> Result<()> {
    for source in workspace::entries(directory)? {
        let found = fs::symlink_metadata(&source)?;
        if found.is_dir() {
            collect(&source, files, assets)?;
            continue;
        }
        let dest = format!("/{}", source.strip_prefix(files)?.display());
        assets.push(Asset {
            mode: format!("{:o}", found.permissions().mode() & 0o7777),
            // What an administrator has changed stays.
            config: dest.starts_with("/etc/").then_some("noreplace"),
            doc: dest.starts_with("/usr/share/doc/") || dest.starts_with("/usr/share/man/"),
            dest: where_rpm_has(dest),
            source,
        });
    }
    Ok(())
}

/// Returns where a file of the .deb is installed by the .rpm.
pub fn where_rpm_has(path: String) -> String {
    let moved = MOVED.iter().find(|(from, _)| *from == path);
    moved.map_or(path, |(_, to)| (*to).to_owned())
}
